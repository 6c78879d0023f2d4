"""A run's figures as words: the headline, percentages, durations, the answers that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from longseal.evaluation.results import Accuracy, Case, Evaluation
from longseal.report.contents import Contents

_AFTER = {"folded": "with the scales folded in", "tuned": "with the scales attached"}
_NAMES = {"base": "the base", "tuned": "the tuned model", "folded": "the folded model"}


@dataclass(frozen=True)
class Changes:
    """What became of the questions that two variants were both asked.

    Attributes:
        after: the variant that is held against the base.
        asked: how many questions both answered.
        gained, lost: pairs (base's case, the other's), wrong-then-right and right-then-wrong, the
            longest first.
    """

    after: str
    asked: int
    gained: tuple[tuple[Case, Case], ...]
    lost: tuple[tuple[Case, Case], ...]


def percent(share: float) -> str:
    """A share as whole percent, halves rounded up.

    >>> percent(0.125)
    '13%'
    """
    return f"{floor(share * 100 + 0.5)}%"


def interval(accuracy: Accuracy) -> str:
    """The 95% interval, such as `69–96%`."""
    return f"{percent(accuracy.low)[:-1]}–{percent(accuracy.high)}"


def short_length(tokens: int) -> str:
    """A length as it is typed: `512`, `2k`; one that is no multiple of 1024 in full."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else f"{tokens:,}"


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds, or hours and minutes.

    >>> duration(61.2), duration(754), duration(7300)
    ('61.2 s', '12 min 34 s', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def headline(contents: Contents) -> str:
    """What happened, in numbers."""
    if not contents.evaluation.cases:
        return _tuning_headline(contents)
    unchanged = _unchanged(contents)
    found = {(a.variant, a.length): a for a in contents.evaluation.accuracy()}
    for variant, with_scales in _AFTER.items():
        both = [n for v, n in found if v == variant and ("base", n) in found]
        if both and not unchanged:
            base, after = found["base", max(both)], found[variant, max(both)]
            return (
                f"At {max(both):,} tokens the base answered {_count(base)} right; "
                f"{with_scales} {_count(after)}."
            )
    variant = next(iter(found))[0]
    length = max(n for v, n in found if v == variant)
    name = _NAMES.get(variant, variant)
    said = f"At {length:,} tokens {name} answered {_count(found[variant, length])} right."
    return f"{unchanged} {said}" if unchanged else said


def changes(evaluation: Evaluation) -> Changes | None:
    """Hold the base's answers against the folded (else the tuned) model's, question by question."""
    asked: dict[str, dict[tuple[object, ...], Case]] = {}
    for c in evaluation.cases:
        asked.setdefault(c.variant, {})[c.task, c.seed, c.length, c.context, c.question] = c
    after = next((v for v in _AFTER if v in asked), None)
    if after is None or "base" not in asked:
        return None
    pairs = [(c, asked[after][key]) for key, c in asked["base"].items() if key in asked[after]]
    pairs.sort(key=lambda pair: -pair[0].length)
    return Changes(
        after,
        len(pairs),
        tuple(p for p in pairs if p[1].correct and not p[0].correct),
        tuple(p for p in pairs if p[0].correct and not p[1].correct),
    )


def spread_out(pairs: Sequence[tuple[Case, Case]], count: int) -> list[tuple[Case, Case]]:
    """Up to `count` of the pairs, of different contexts and lengths as far as there are."""
    order: dict[tuple[int, int], int] = {}
    ranked = []
    for place, pair in enumerate(pairs):
        sample = (pair[0].length, pair[0].context)
        order[sample] = order.get(sample, -1) + 1
        ranked.append((order[sample], place))
    return [pairs[place] for _, place in sorted(ranked)[:count]]


def _count(accuracy: Accuracy) -> str:
    return f"{accuracy.correct} of {accuracy.total}"


def _unchanged(contents: Contents) -> str:
    """Why nothing was changed; empty where something was, or nothing was tuned."""
    if contents.adapter is None or not contents.adapter.scales.unchanged:
        return ""
    if contents.adapter.record.get("held_out_base") == 1.0:
        return "The base answered every held-out question right, so it was left unchanged."
    return "Nothing that was tried beat the base on held-out questions, so it was left unchanged."


def _tuning_headline(contents: Contents) -> str:
    if contents.adapter is None:
        count = len(contents.steps)
        return f"Tuning stands at {count} step{'s' * (count != 1)}; nothing is chosen yet."
    record = contents.adapter.record
    chosen, base = record.get("chosen", {}), record.get("held_out_base")
    if unchanged := _unchanged(contents):
        return unchanged
    if base is None or chosen.get("accuracy") is None:
        return f"Scales were tuned in {len(contents.steps)} steps."
    length = record.get("settings", {}).get("length")
    where = f" at {length:,} tokens" if length else ""
    return f"Held-out accuracy{where} went from {percent(base)} to {percent(chosen['accuracy'])}."
