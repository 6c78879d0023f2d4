"""Greedy answers, as a user's engine would give them, to many questions over few contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from longseal.models.load import LanguageModel
from longseal.models.packed_row import Layout, Memory, PackedRow, Segment
from longseal.models.shared_context import (
    logits_of,
    packed_attention,
    packed_pass,
    shares_context,
)

#: Contexts are answered together while they hold no more tokens than this (or one by one): a pass
#: reads all weights, so the more answers grow in it the better, but their keys have to be kept.
TOGETHER = 16_384


class Prompted(Protocol):
    """A context and what follows it in each prompt: prompt i is `context + questions[i]`."""

    @property
    def context(self) -> Sequence[int]:
        """Tokens that all prompts begin with."""
        ...

    @property
    def questions(self) -> Sequence[Sequence[int]]:
        """What is left of each prompt, at least one token."""
        ...


@dataclass(frozen=True)
class Continuation:
    """The new tokens of one prompt, without the stop token."""

    sample: int
    question: int
    tokens: list[int]


def generate(
    model: LanguageModel,
    samples: Sequence[Prompted],
    *,
    max_new_tokens: int,
    stop_tokens: Sequence[int],
) -> Iterator[Continuation]:
    """Continue every prompt greedily, and give each answer as soon as it is whole.

    A context is run once where the model allows it (`shares_context`), and with each question
    otherwise; the answers are the same. Generation settings that ship with the model are left out.
    """
    stop = frozenset(stop_tokens)
    if not shares_context(model.network):
        for index, sample in enumerate(samples):
            yield from _batched(model, index, sample, max_new_tokens, stop)
        return
    together: list[int] = []
    for index in range(len(samples)):
        if together and sum(len(samples[i].context) for i in [*together, index]) > TOGETHER:
            yield from _packed(model, {i: samples[i] for i in together}, max_new_tokens, stop)
            together = []
        together.append(index)
    yield from _packed(model, {i: samples[i] for i in together}, max_new_tokens, stop)


class _Growing:
    """A packed row whose blocks grow by a token in every pass while they are being answered."""

    def __init__(self, index: int, sample: Prompted, room: int, device: torch.device) -> None:
        self.index = index
        self._start = len(sample.context)
        self._lengths = [len(question) for question in sample.questions]
        self.row = PackedRow.of(sample.context, sample.questions, device)
        self.memory = Memory(self.row.tokens.shape[1] + room * len(sample.questions))
        self.answers: list[list[int]] = [[] for _ in sample.questions]
        self.alive = list(range(len(sample.questions)))
        self._layout = self.row.layout

    def context_pass(self) -> tuple[Segment, Tensor, Tensor]:
        """The context alone."""
        n = self._start
        layout = Layout(n, self._layout.blocks[:0])
        return Segment(layout, n, self.memory), self.row.tokens[:, :n], self.row.positions[:, :n]

    def question_pass(self) -> tuple[Segment, Tensor, Tensor]:
        """All questions, after the context."""
        tokens, positions = self.row.tokens[:, self._start :], self.row.positions[:, self._start :]
        return Segment(self._layout, tokens.shape[1], self.memory), tokens, positions

    def next_pass(self) -> tuple[Segment, Tensor, Tensor]:
        """The last token of every answer that is not whole yet."""
        device = self.row.tokens.device
        tokens = torch.tensor([[self.answers[i][-1] for i in self.alive]], device=device)
        places = [self._start + self._lengths[i] + len(self.answers[i]) - 1 for i in self.alive]
        blocks = torch.cat([self._layout.blocks, torch.tensor(self.alive, device=device)])
        self._layout = Layout(self._start, blocks)
        positions = torch.tensor([places], device=device)
        return Segment(self._layout, len(self.alive), self.memory), tokens, positions

    def take(self, tokens: list[int], limit: int, stop: frozenset[int]) -> Iterator[Continuation]:
        """Add a token to each answer that grows; give those that are whole with it."""
        for question, token in zip(list(self.alive), tokens, strict=True):
            answer = self.answers[question]
            if token not in stop:
                answer.append(token)
            if token in stop or len(answer) == limit:
                self.alive.remove(question)
                yield Continuation(self.index, question, answer)


def _packed(
    model: LanguageModel,
    samples: dict[int, Prompted],
    max_new_tokens: int,
    stop: frozenset[int],
) -> Iterator[Continuation]:
    """Run each context, then all questions of all contexts side by side."""
    network, device = model.network, model.device
    rows = [_Growing(i, sample, max_new_tokens, device) for i, sample in samples.items()]
    for row in rows:
        segment, tokens, positions = row.context_pass()
        with torch.no_grad(), packed_attention(network), packed_pass(segment):
            logits_of(network, tokens, positions, row.row.ends[:0])
    passes = [row.question_pass() for row in rows]
    ends = [row.row.ends - len(samples[row.index].context) for row in rows]
    while rows:
        sizes = [segment.tokens for segment, _, _ in passes]
        starts = accumulate(sizes, initial=0)
        places = torch.cat([start + end for start, end in zip(starts, ends, strict=False)])
        tokens = torch.cat([part for _, part, _ in passes], dim=1)
        positions = torch.cat([part for _, _, part in passes], dim=1)
        segments = [segment for segment, _, _ in passes]
        # These hold only while the network runs: the caller may use it between two answers.
        with torch.no_grad(), packed_attention(network), packed_pass(*segments):
            logits = logits_of(network, tokens, positions, places)
        chosen = logits.argmax(-1).split([len(end) for end in ends])
        for row, new in zip(rows, chosen, strict=True):
            yield from row.take(new.tolist(), max_new_tokens, stop)
        rows = [row for row in rows if row.alive]
        passes = [row.next_pass() for row in rows]
        ends = [torch.arange(len(row.alive), device=device) for row in rows]


def _batched(
    model: LanguageModel,
    index: int,
    sample: Prompted,
    max_new_tokens: int,
    stop: frozenset[int],
) -> Iterator[Continuation]:
    """The whole prompts as a batch, padded on the left."""
    ends = sorted(stop)
    settings = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends,
        pad_token_id=ends[0],
        use_cache=True,
    )
    longest = max(map(len, sample.questions))
    padding = [longest - len(question) for question in sample.questions]
    rows = [
        [ends[0]] * n + [*sample.context, *question]
        for n, question in zip(padding, sample.questions, strict=True)
    ]
    inputs = torch.tensor(rows, device=model.device)
    mask = torch.ones_like(inputs)
    for row, n in zip(mask, padding, strict=True):
        row[:n] = 0
    with torch.no_grad(), _own_settings(model.network, settings):
        run: Any = model.network.generate
        output = run(input_ids=inputs, attention_mask=mask, generation_config=settings)
    for question, row in enumerate(output):
        yield Continuation(index, question, _until(row[inputs.shape[1] :].tolist(), stop))


def _until(tokens: list[int], stop: frozenset[int]) -> list[int]:
    end = next((i for i, token in enumerate(tokens) if token in stop), len(tokens))
    return tokens[:end]


@contextmanager
def _own_settings(network: PreTrainedModel, settings: GenerationConfig) -> Iterator[None]:
    """`generate` fills what we leave unset from the model's own settings, so hide those."""
    theirs = network.generation_config
    network.generation_config = settings
    try:
        yield
    finally:
        network.generation_config = theirs
