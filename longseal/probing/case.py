"""A question that the base fails and the tuned model solves, and what decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from longseal.models.arguments import last_logits
from longseal.models.load import LanguageModel
from longseal.models.row_length import forget_lengths
from longseal.probing.answers import Asking
from longseal.probing.direct import Contribution, DirectEffect, direct_effect
from longseal.tasks.prompt import EncodedSample

Attach = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Case:
    """A question that only the tuned model answers right, where the two models part.

    Attributes:
        length: of the prompt, in tokens, as it was asked for.
        question: its text.
        right, wrong: what the tuned model and the base answer.
        before: what of the right answer stands before the token where they part.
        token, other: the right answer's token there, and the one that the base prefers.
        in_wording: whether they part outside of what was asked for.
        base, tuned: what each part of either model adds to logit(token) - logit(other).
    """

    length: int
    question: str
    right: str
    wrong: str
    before: str
    token: str
    other: str
    in_wording: bool
    base: DirectEffect
    tuned: DirectEffect

    @property
    def difference(self) -> tuple[Contribution, ...]:
        """What tuning made each part add more, what changed most first."""
        before, now = ({p.name: p for p in side.contributions} for side in (self.base, self.tuned))
        changed = []
        for name, part in {**before, **now}.items():
            was, is_now = (side[name].value if name in side else 0.0 for side in (before, now))
            changed.append(replace(part, value=is_now - was))
        return tuple(sorted(changed, key=lambda part: -abs(part.value)))


def case_of(asking: Asking, encoded: EncodedSample, length: int, attach: Attach) -> Case | None:
    """Look into a question that the tuned model answers right and the base does not.

    Where answers differ in their wording too, they part at more than one place of the right answer.
    The one looked at is inside of what was asked for, if they part there; of several, the one where
    tuning moved the difference of the two logits most.

    Args:
        encoded: a sample with that question alone.
        attach: attaches the adapter inside its block.

    Returns:
        None where the base, led along the right answer, would go on as the tuned model does up to
        its end.

    Raises:
        LongsealError: the model's parts cannot be told apart (`direct_effect`).
    """
    model = asking.model
    prompt = encoded.prompt(0)
    wrong, answer = _answer(asking, encoded, nullcontext), _answer(asking, encoded, attach)
    if not answer:
        return None
    base, tuned = (_logits(model, prompt, answer, way) for way in (nullcontext, attach))
    tokens = torch.tensor(answer)
    others = base.argmax(-1)
    gains = _ahead(tuned, tokens, others) - _ahead(base, tokens, others)
    parted = [place for place, other in enumerate(others) if other != answer[place]]
    if not parted:
        return None
    asked_for = places_of(encoded.source.questions[0].expected, answer, asking.prompts.text)
    inside = [place for place in parted if place in asked_for]
    place = max(inside or parted, key=gains.__getitem__)
    token, other = answer[place], int(others[place])
    row = [*prompt, *answer[:place]]
    effects = []
    for way in (nullcontext, attach):
        with way():
            effects.append(direct_effect(model, row, token, other))
    text = asking.prompts.text
    return Case(
        length,
        encoded.source.questions[0].text,
        text(answer),
        text(wrong),
        text(answer[:place]),
        text([token]),
        text([other]),
        not inside,
        *effects,
    )


def places_of(
    expected: Sequence[str], answer: Sequence[int], text: Callable[[Sequence[int]], str]
) -> range:
    """Which tokens of an answer hold the first of the references that stands in it; none may."""
    whole = text(answer)
    for reference in expected:
        start = whole.find(reference) if reference else -1
        if start >= 0:
            ends = [len(text(answer[: place + 1])) for place in range(len(answer))]
            last = start + len(reference)
            return range(sum(end <= start for end in ends), sum(end < last for end in ends) + 1)
    return range(0)


def _answer(asking: Asking, encoded: EncodedSample, attach: Attach) -> list[int]:
    with attach():
        return asking.tokens(encoded)


@torch.no_grad()
def _logits(
    model: LanguageModel, prompt: Sequence[int], answer: Sequence[int], attach: Attach
) -> Tensor:
    """Logits that predict each token of the answer: `(n_answer, vocabulary)` float32."""
    network = model.network
    row = torch.tensor([[*prompt, *answer[:-1]]], device=model.device)
    forget_lengths(network)
    with attach():
        logits = network(input_ids=row, **last_logits(network, len(answer)), use_cache=False).logits
    found: Tensor = logits[0, -len(answer) :].float().cpu()
    return found


def _ahead(logits: Tensor, tokens: Tensor, others: Tensor) -> Tensor:
    """By how much each token's logit is above the other's: `(n_answer,)`."""
    chosen = logits.gather(1, torch.stack([tokens, others], 1))
    return chosen[:, 0] - chosen[:, 1]
