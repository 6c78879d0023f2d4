"""Greedy answers, as a user's engine would give them, to many questions over few contexts."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from time import monotonic

import torch

from longseal.models.growing import Growing, grow
from longseal.models.load import LanguageModel
from longseal.models.packed_row import Memory
from longseal.models.padded_rows import continue_rows, runs_together
from longseal.models.prefixes import sharing_order
from longseal.models.prompted import Asked, Continuation, Prompted
from longseal.models.row_length import hold_frequencies, same_positions
from longseal.models.shared_context import (
    logits_of,
    packed_attention,
    packed_pass,
    shares_context,
)

__all__ = ["Continuation", "Prompted", "generate"]

#: Samples are answered together while they need room for no more tokens than this (or one by one):
#: a pass reads all weights, so the more answers grow in it the better, but their keys are kept.
TOGETHER = 16_384
#: Prompts that are padded to one length have at least this share of it.
_SIMILAR = 7 / 8


def generate(
    model: LanguageModel,
    samples: Sequence[Prompted],
    *,
    max_new_tokens: int | Sequence[Sequence[int]],
    stop_tokens: Sequence[int],
) -> Iterator[Continuation]:
    """Continue every prompt greedily, and give each answer as soon as it is whole.

    Where the model allows it (`shares_context`) a context is run once for all its questions, and
    what several contexts begin with is run once for all of them; each prompt is run whole
    otherwise. The answers are the same. Generation settings that ship with the model are left out.

    Args:
        samples: answered in an order of our own.
        max_new_tokens: for each answer, or for each question of each sample; at least 1.
    """
    stop = frozenset(stop_tokens)
    packable: dict[int, list[Asked]] = {}
    others: list[Asked] = []
    for asked in _asked(samples, max_new_tokens):
        positions = None
        if shares_context(model.network):
            shortest = max(1, len(asked.context))
            positions = same_positions(model.network, shortest, asked.longest + max(asked.budgets))
        if positions is None:
            others.append(asked)
        else:
            packable.setdefault(positions, []).append(asked)
    for rows in packable.values():
        groups = list(_groups(rows))
        go_on = [group[0][1] > 0 for group in groups[1:]] + [False]
        kept = Memory(0)
        for group, goes_on in zip(groups, go_on, strict=True):
            kept = yield from _packed(model, group, stop, kept, goes_on)
    for batch in _batches(model, others):
        yield from _padded(model, batch, stop)


def _asked(samples: Sequence[Prompted], budgets: int | Sequence[Sequence[int]]) -> Iterator[Asked]:
    for index, sample in enumerate(samples):
        questions = tuple(map(tuple, sample.questions))
        own = [budgets] * len(questions) if isinstance(budgets, int) else budgets[index]
        assert len(own) == len(questions)
        if questions:
            yield Asked(index, tuple(sample.context), questions, tuple(own))


def _groups(rows: Iterable[Asked]) -> Iterator[list[tuple[Asked, int]]]:
    """Samples to answer together, each with how much of its context is in the row before it."""
    known = {asked.index: asked for asked in rows}
    group: list[tuple[Asked, int]] = []
    room = 0
    for index, shared in sharing_order({i: asked.context for i, asked in known.items()}):
        asked = known[index]
        if group and room + asked.room > TOGETHER:
            yield group
            group, room = [], 0
        group.append((asked, shared))
        room += asked.room
    if group:
        yield group


def _packed(
    model: LanguageModel,
    group: Sequence[tuple[Asked, int]],
    stop: frozenset[int],
    before: Memory,
    goes_on: bool,
) -> Generator[Continuation, None, Memory]:
    """Run each context, then all questions of all contexts side by side.

    Args:
        before: what is kept of the group before this one; it is let go.

    Returns:
        What the next group goes on from, if it does.
    """
    network, device = model.network, model.device
    rows: list[Growing] = []
    kept = before
    for asked, shared in group:
        began = monotonic()
        kept = kept.start(shared, asked.room, last=not rows)
        row = Growing(asked, kept, device)
        rows.append(row)
        segment, tokens, positions = row.context_pass(shared)
        if segment.tokens:
            with torch.no_grad(), packed_attention(network), packed_pass(segment):
                logits_of(network, tokens, positions, segment.layout.blocks)
            if device.type != "cpu":
                torch.accelerator.synchronize(device)  # or its time would be counted for the next
        row.spend((monotonic() - began) / len(row.alive))
    yield from grow(model, rows, stop)
    return kept if goes_on else Memory(0)


def _batches(model: LanguageModel, samples: Sequence[Asked]) -> Iterator[list[tuple[Asked, int]]]:
    """Prompts to run as one batch, as (sample, question): of samples of similar length."""
    together: list[Asked] = []
    for asked in sorted(samples, key=lambda one: one.longest):
        prompts = sum(len(one.questions) for one in [*together, asked])
        similar = not together or together[0].longest >= _SIMILAR * asked.longest
        if together and (not similar or prompts * asked.longest > TOGETHER):
            yield from _alike(model, together)
            together = []
        together.append(asked)
    yield from _alike(model, together)


def _alike(model: LanguageModel, samples: Sequence[Asked]) -> Iterator[list[tuple[Asked, int]]]:
    """Part prompts that must not run together; one whose encoding changes as it grows is alone."""
    network, together = model.network, runs_together(model.network)
    kinds: dict[Hashable, list[tuple[Asked, int]]] = {}
    for asked in samples:
        for question, budget in enumerate(asked.budgets):
            length = len(asked.prompt(question))
            kind: Hashable = same_positions(network, length, length + budget)
            if kind is None or together == "none":
                kind = asked.index, question
            elif together == "equal":
                kind = kind, length, "long"
            kinds.setdefault(kind, []).append((asked, question))
    yield from kinds.values()


def _padded(
    model: LanguageModel, batch: Sequence[tuple[Asked, int]], stop: frozenset[int]
) -> Iterator[Continuation]:
    """Run whole prompts side by side."""
    began = monotonic()
    budgets = [asked.budgets[question] for asked, question in batch]
    prompts = [asked.prompt(question) for asked, question in batch]
    lengths = [len(prompt) for prompt in prompts]  # beside each other only where all have one set
    keep = hold_frequencies(model.network, min(lengths), max(lengths) + max(budgets))
    rows = continue_rows(model.network, prompts, max(budgets), stop, keep=keep)
    seconds = (monotonic() - began) / len(batch)
    for (asked, question), row, budget in zip(batch, rows, budgets, strict=True):
        yield Continuation(asked.index, question, row[:budget], seconds)
