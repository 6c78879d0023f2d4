"""Greedy answers, as a user's engine would give them, to many questions over one context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from longseal.models.arguments import new_cache
from longseal.models.load import LanguageModel
from longseal.models.shared_context import (
    Layout,
    PackedRow,
    packed_attention,
    row_layout,
    shares_context,
)

Tokens = Sequence[int]


def generate(
    model: LanguageModel,
    context: Tokens,
    questions: Sequence[Tokens],
    *,
    max_new_tokens: int,
    stop_tokens: Sequence[int],
) -> list[list[int]]:
    """Continue each prompt `context + question` greedily.

    The context is run once where the model allows it (`shares_context`), and with each question
    otherwise; the answers are the same. Generation settings that ship with the model are left out.

    Returns:
        The new tokens of each question, without the stop token.
    """
    one_by_one = _packed if shares_context(model.network) else _batched
    with torch.no_grad():
        return one_by_one(model, context, questions, max_new_tokens, frozenset(stop_tokens))


def _packed(
    model: LanguageModel,
    context: Tokens,
    questions: Sequence[Tokens],
    max_new_tokens: int,
    stop: frozenset[int],
) -> list[list[int]]:
    """One packed row that grows by a token for each question that is still being answered."""
    network, device = model.network, model.device
    cache = new_cache(network)
    answers: list[list[int]] = [[] for _ in questions]
    row = PackedRow.of(context, questions, device)
    with packed_attention(network):
        # The context alone goes first: blocks of any number then find it in the cache.
        tokens, positions = row.tokens[:, : len(context)], row.positions[:, : len(context)]
        with row_layout(Layout(len(context), row.layout.blocks[:0])):
            network(
                input_ids=tokens, position_ids=positions, logits_to_keep=1, use_cache=True, **cache
            )
        tokens, positions = row.tokens[:, len(context) :], row.positions[:, len(context) :]
        ends, layout = row.ends - len(context), row.layout
        alive = list(range(len(questions)))
        for step in range(max_new_tokens):
            with row_layout(layout):
                logits = network(
                    input_ids=tokens,
                    position_ids=positions,
                    logits_to_keep=ends,
                    use_cache=True,
                    **cache,
                ).logits[0]
            for index, token in zip(list(alive), logits.argmax(-1).tolist(), strict=True):
                if token in stop:
                    alive.remove(index)
                else:
                    answers[index].append(token)
            if not alive:
                break
            tokens = torch.tensor([[answers[i][-1] for i in alive]], device=device)
            places = [len(context) + len(questions[i]) + step for i in alive]
            positions = torch.tensor([places], device=device)
            ends = torch.arange(len(alive), device=device)
            block = torch.tensor(alive, device=device)
            layout = Layout(layout.context, torch.cat([layout.blocks, block]))
    return answers


def _batched(
    model: LanguageModel,
    context: Tokens,
    questions: Sequence[Tokens],
    max_new_tokens: int,
    stop: frozenset[int],
) -> list[list[int]]:
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
    longest = max(map(len, questions))
    padding = [longest - len(question) for question in questions]
    rows = [[ends[0]] * n + [*context, *q] for n, q in zip(padding, questions, strict=True)]
    inputs = torch.tensor(rows, device=model.device)
    mask = torch.ones_like(inputs)
    for row, n in zip(mask, padding, strict=True):
        row[:n] = 0
    with _own_settings(model.network, settings):
        generate: Any = model.network.generate
        output = generate(input_ids=inputs, attention_mask=mask, generation_config=settings)
    return [_until(row[inputs.shape[1] :].tolist(), stop) for row in output]


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
