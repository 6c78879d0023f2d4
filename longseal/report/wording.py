"""A run's figures as words: the headline, percentages, durations, the answers that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from longseal import record
from longseal.evaluation.compare import BASE, Pair, pairs
from longseal.evaluation.results import Accuracy, Case, Evaluation
from longseal.probing import Probe
from longseal.report.contents import Contents

_AFTER = {"folded": "with the scales folded in", "tuned": "with the adapter attached"}
_NAMES = {"base": "the base", "tuned": "the tuned model", "folded": "the folded model"}


@dataclass(frozen=True)
class Changes:
    """What became of the questions that the base and another variant were both asked.

    Attributes:
        after: the variant that is held against the base.
        pairs: of cases, the base's and the other's.
    """

    after: str
    pairs: tuple[Pair, ...]

    @property
    def gained(self) -> list[Pair]:
        """Scored higher than before (wrong and then right), the longest first."""
        return self._longest_first(lambda base, after: after.value > base.value)

    @property
    def lost(self) -> list[Pair]:
        """Scored lower than before (right and then wrong), the longest first."""
        return self._longest_first(lambda base, after: after.value < base.value)

    def _longest_first(self, wanted: Callable[[Case, Case], bool]) -> list[Pair]:
        found = (pair for pair in self.pairs if wanted(*pair))
        return sorted(found, key=lambda pair: -pair[0].length)


def percent(share: float) -> str:
    """A share as whole percent, halves rounded up.

    >>> percent(0.125)
    '13%'
    """
    return f"{floor(share * 100 + 0.5)}%"


def share(accuracy: Accuracy) -> str:
    """The share of right answers, such as `88%`; the mean, `0.42`, where there are parts of one."""
    return f"{accuracy.value:.2f}" if accuracy.correct is None else percent(accuracy.value)


def count(accuracy: Accuracy) -> str:
    """How many answers were right, such as `21 of 24`, or how many the mean is of."""
    right = "mean" if accuracy.correct is None else accuracy.correct
    return f"{right} of {accuracy.total}"


def interval(accuracy: Accuracy) -> str:
    """The 95% interval, such as `69–96%` or `0.69–0.96`."""
    if accuracy.correct is None:
        return f"{accuracy.low:.2f}–{accuracy.high:.2f}"
    return f"{percent(accuracy.low)[:-1]}–{percent(accuracy.high)}"


def explained(accuracies: Sequence[Accuracy], means: Sequence[Accuracy]) -> str:
    """What the cells of a table of these, and of means over tasks, hold."""
    said = []
    if any(a.correct is not None for a in accuracies):
        said.append("Percent: share answered right, the count, and the 95% interval (Wilson).")
    if any(a.correct is None for a in accuracies):
        said.append(
            "0 to 1: the mean score, of how many answers, and the 95% interval (bootstrap, BCa)."
        )
    if means:
        said.append("Means over tasks weigh each task the same.")
    return " ".join(said)


def verdict(case: Case) -> str:
    """What an answer got: `right`, `wrong`, or its part of a point."""
    return {0.0: "wrong", 1.0: "right"}.get(case.value, f"score {case.value:.2f}")


def asked(tasks: Sequence[str]) -> str:
    """Which tasks were asked; of more than three their families, such as `ruler (13 tasks)`."""
    if len(tasks) <= 3:
        return ", ".join(tasks)
    families = Counter(task.split("/")[0] for task in tasks)
    return ", ".join(f"{f} ({n} tasks)" if n > 1 else f for f, n in families.items())


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
    evaluation = contents.evaluation
    if contents.probe is not None:
        return _headline_of_heads(contents.probe)
    if not evaluation.cases:
        return _tuning_headline(contents)
    if len(found := compared_adapters(evaluation)) > 1:
        return _headline_of_adapters(found)
    unchanged = _unchanged(contents)
    if len({(case.task, case.group) for case in evaluation.cases}) > 1:
        said = _headline_of_tasks(evaluation, alone=bool(unchanged))
    else:
        said = _headline_of_task(evaluation, alone=bool(unchanged))
    return f"{unchanged} {said}" if unchanged else said


def _headline_of_heads(found: Probe) -> str:
    """What helps most and what harms most, at the greatest length."""
    longest = max(base.length for base in found.base)
    here = [each for each in found.best_known if each.length == longest]
    # What an audit confirmed counts more than a larger estimate.
    here = [each for each in here if each.method != "gradient"] or here
    helps, harms = (end(here, key=lambda each: each.change) for end in (min, max))
    at = f"At {longest:,} tokens"
    if helps.change >= 0:
        return f"{at} nothing that was pruned helps the right answers."
    said = f"{at} {helps.name} helps most: {-helps.change:.2f} nats of a right answer"
    return (
        f"{said}; {harms.name} harms most: {harms.change:.2f}." if harms.change > 0 else f"{said}."
    )


def _headline_of_adapters(found: Mapping[str, Sequence[Pair]]) -> str:
    """Which of several adapters does best over all questions."""

    def gain(variant: str) -> float:
        return sum(after.value - base.value for base, after in found[variant]) / len(found[variant])

    best = max(found, key=gain)
    (was, now), verb, rest = _figures(list(zip(*found[best], strict=True)))
    on = _on([base for base, _ in found[best]])
    if gain(best) > 0:
        did = f"it {verb} {now} {rest}, the base {was}"
        return f"Of {len(found)} adapters, {best} does best on {on}: {did}."
    did = f"it {verb} {was} {rest}, {best} {now}"
    return f"None of {len(found)} adapters beats the base on {on}: {did}."


def _headline_of_task(evaluation: Evaluation, *, alone: bool) -> str:
    """At the longest length; of one variant alone, or of what came before and after."""
    found = {(a.variant, a.length): a for a in evaluation.accuracy()}
    for variant in _compared(evaluation):
        both = [n for v, n in found if v == variant and (BASE, n) in found]
        if both and not alone:
            base, after = found[BASE, max(both)], found[variant, max(both)]
            return (
                f"At {max(both):,} tokens the base {_did(base)}; {_with(variant)} "
                f"{share(after) if after.correct is None else count(after)}."
            )
    variant = next(iter(found))[0]
    length = max(n for v, n in found if v == variant)
    return f"At {length:,} tokens {_NAMES.get(variant, variant)} {_did(found[variant, length])}."


def _headline_of_tasks(evaluation: Evaluation, *, alone: bool) -> str:
    """Over all questions; of one variant alone, or of what came before and after."""
    compared = None if alone else changes(evaluation)
    first = evaluation.cases[0].variant
    if compared is None:
        sides = [[case for case in evaluation.cases if case.variant == first]]
    else:
        sides = [list(side) for side in zip(*compared.pairs, strict=True)]
    figures, verb, rest = _figures(sides)
    name = _NAMES.get(first, first)
    said = f"On {_on(sides[0])} {name} {verb} {figures[0]} {rest}"
    return f"{said}." if compared is None else f"{said}; {_with(compared.after)} {figures[1]}."


def _on(cases: Sequence[Case]) -> str:
    tasks = len({case.task for case in cases})
    return f"{len(cases):,} questions of {tasks} task{'s' * (tasks != 1)}"


def _figures(sides: Sequence[Sequence[Case]]) -> tuple[list[str], str, str]:
    """What each side did over all its questions, and the words before and after that number."""
    if all(case.value in (0, 1) for side in sides for case in side):
        return [str(sum(case.correct for case in side)) for side in sides], "answered", "right"
    means = [f"{sum(case.value for case in side) / len(side):.2f}" for side in sides]
    return means, "scored", "on average"


def changes(evaluation: Evaluation) -> Changes | None:
    """Hold the base's answers against the folded (else the tuned) model's, question by question.

    None where no question was asked of both, or several adapters were.

    Raises:
        LongsealError: the two were asked different prompts.
    """
    for after in _compared(evaluation):
        if both := _pairs(evaluation, after):
            return Changes(after, tuple(both))
    return None


def compared_adapters(evaluation: Evaluation) -> dict[str, list[Pair]]:
    """The questions that the base and each adapter were both asked, by variant.

    Raises:
        LongsealError: two were asked different prompts.
    """
    found = {variant: _pairs(evaluation, variant) for variant in _adapters(evaluation)}
    return {variant: both for variant, both in found.items() if both}


def _compared(evaluation: Evaluation) -> list[str]:
    """What is held against the base: first the folded model, then the one adapter."""
    adapters = _adapters(evaluation)
    return ["folded", *adapters] if len(adapters) <= 1 else []


def _adapters(evaluation: Evaluation) -> list[str]:
    """The variants that are neither the base nor folded."""
    variants = dict.fromkeys(case.variant for case in evaluation.cases)
    return [variant for variant in variants if variant not in (BASE, "folded")]


def _pairs(evaluation: Evaluation, after: str) -> list[Pair]:
    base, other = ([case for case in evaluation.cases if case.variant == v] for v in (BASE, after))
    return pairs(base, other)


def _with(variant: str) -> str:
    return _AFTER.get(variant, f"with the adapter {variant}")


def spread_out(found: Sequence[Pair], most: int) -> list[Pair]:
    """Up to `most` of the pairs, of different tasks, lengths and contexts as far as there are."""
    order: dict[tuple[str, int, int], int] = {}
    ranked = []
    for place, pair in enumerate(found):
        sample = (pair[0].task, pair[0].length, pair[0].context)
        order[sample] = order.get(sample, -1) + 1
        ranked.append((order[sample], place))
    return [found[place] for _, place in sorted(ranked)[:most]]


def _did(accuracy: Accuracy) -> str:
    """What a variant did, such as `answered 21 of 24 right`."""
    if accuracy.correct is None:
        return f"scored {share(accuracy)} on average"
    return f"answered {count(accuracy)} right"


def _unchanged(contents: Contents) -> str:
    """Why nothing was changed; empty where something was, or nothing was tuned."""
    if not contents.unchanged:
        return ""
    if contents.record.get("held_out_base") == 1.0:
        return "The base answered every held-out question right, so it was left unchanged."
    if contents.record.get("refused"):
        return "What gained on held-out questions did harm elsewhere, so it was left unchanged."
    return "Nothing that was tried beat the base on held-out questions, so it was left unchanged."


def _tuning_headline(contents: Contents) -> str:
    if contents.adapter is None:
        count = len(contents.steps)
        return f"Tuning stands at {count} step{'s' * (count != 1)}; nothing is chosen yet."
    found = contents.record
    if found.get("sentence"):
        return str(found["sentence"])
    if unchanged := _unchanged(contents):
        return unchanged
    chosen, base = found.get("chosen", {}), found.get("held_out_base")
    if base is None or chosen.get("accuracy") is None:
        return f"It was tuned in {len(contents.steps)} steps."
    lengths = [f"{length:,}" for length in record.lengths(found)]
    where = f" at {' to '.join(lengths)} tokens" if lengths else ""
    return f"Held-out accuracy{where} went from {percent(base)} to {percent(chosen['accuracy'])}."
