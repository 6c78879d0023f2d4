"""Whether one model answers better than another: the same questions, pair by pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from longseal.errors import LongsealError
from longseal.evaluation.results import Case, Evaluation, label

SURE = 0.05  # a difference that chance alone gives more rarely than this is called real
_ENOUGH = 6  # contexts: with fewer, not even one way on all of them is rarer than that (2 of 2**5)

#: What the model is called that others are compared with.
BASE = "base"
#: A question as the first model answered it, and as the second did.
Pair = tuple[Case, Case]


@dataclass(frozen=True)
class Comparison:
    """Two models on the same questions.

    Attributes:
        base, after: the variants; `difference` is that of `after` from `base`.
        task, group, length: what was asked; empty and None for all questions together.
        questions, contexts: how many, and on how many contexts they stand.
        gained, lost: questions that `after` scores higher, and lower, than `base`.
        whole: every answer is right or wrong, none in part.
        difference: of the mean scores, -1 to 1.
        low, high: its 95% interval.
        p: how often chance alone gives so great a difference, either way.
    """

    base: str
    after: str
    task: str
    group: str
    length: int | None
    questions: int
    contexts: int
    gained: int
    lost: int
    whole: bool
    difference: float
    low: float
    high: float
    p: float


def pairs(base: Evaluation | Iterable[Case], after: Evaluation | Iterable[Case]) -> list[Pair]:
    """Pair the questions that both models were asked, in the order of `base`.

    Raises:
        LongsealError: one of the two holds several models' cases, or a prompt is not the same.
    """
    first, second = _by_place(base), _by_place(after)
    found = [(case, second[place]) for place, case in first.items() if place in second]
    for one, other in found:
        if one.prompt != other.prompt:
            raise LongsealError(
                f"{one.variant} and {other.variant} were asked different prompts ({one.task}, "
                f"{one.length:,} tokens, context {one.context}, question {one.question}) and "
                "cannot be compared: evaluate both with the same settings and tokenizer"
            )
    return found


def compare(
    base: Evaluation | Iterable[Case], after: Evaluation | Iterable[Case]
) -> tuple[Comparison, ...]:
    """Compare two models on the questions that both were asked.

    One comparison for each task, group and length, in the order of `base`, and, where there are
    several, one of all questions together as the last: that is the one to go by, since of twenty
    comparisons of equal models one comes out below p = 0.05.

    Questions on one context hang together: a context that one model finds easy is easy on all of
    them. So the context is what chance is taken over. Were both models alike, either could have
    given either set of answers to a context; `p` is the share of all such exchanges (`2**contexts`
    of them; 9,999 at random where they are more) that differ at least as much as what was seen.
    With one question a context, right or wrong, this is McNemar's exact test. Contexts of one
    haystack that differ in the needle's depth alone count as contexts of their own: what is shown
    with them is shown for that haystack.

    The interval is Bonett and Price's for paired shares (Journal of Educational and Behavioral
    Statistics 37, 2012), carried over to contexts and to parts of a point: with one question more
    that is gained and one that is lost, by as much as any was, on contexts of their own, it is
    Student's t over contexts. So it does not shrink to a point where all went one way.

    Raises:
        LongsealError: one of the two holds several models' cases, or a prompt is not the same.
    """
    found = pairs(base, after)
    rows: dict[tuple[str, str, int | None], list[Pair]] = defaultdict(list)
    for pair in found:
        rows[pair[0].task, pair[0].group, pair[0].length].append(pair)
    if len(rows) > 1:
        rows["", "", None] = found
    return tuple(_comparison(*key, row) for key, row in rows.items())


def against_base(evaluation: Evaluation) -> tuple[Comparison, ...]:
    """Compare every other variant with the base, one after the other (see `compare`).

    Each p is of its own comparison: it is not corrected for how many there are.

    Raises:
        LongsealError: a prompt is not the same.
    """
    variants = dict.fromkeys(case.variant for case in evaluation.cases)
    cases = {v: [case for case in evaluation.cases if case.variant == v] for v in variants}
    base = cases.pop(BASE, [])
    return tuple(found for after in cases.values() for found in compare(base, after))


def where(comparison: Comparison) -> str:
    """What was asked, such as `ruler/vt at 4,096 tokens`."""
    if comparison.length is None:
        return "all together"
    return f"{label(comparison.task, comparison.group)} at {comparison.length:,} tokens"


def sentence(comparison: Comparison) -> str:
    """Say whether the difference is real."""
    c = comparison
    asked = _count(c.questions, "question")
    if c.contexts < c.questions:
        asked += f" on {_count(c.contexts, 'context')}"
    if not c.gained and not c.lost:
        return f"no difference: each of {asked} got the same score from both"
    chance = f"by chance alone: p {'< 0.001' if c.p < 0.001 else f'= {c.p:.2g}'}"
    if c.p < SURE:
        word = "better" if c.difference > 0 else "worse"
        return f"{c.after} is {word}: {_moved(c, asked)}; so much {chance}"
    if c.contexts < _ENOUGH:
        one_each = c.contexts == c.questions
        need = "questions" if one_each else "contexts (--questions 1 asks one question on each)"
        few = _count(c.contexts, "context")
        return (
            f"too few to say: {_moved(c, asked)}, which {few} cannot tell from chance; "
            f"ask at least {_ENOUGH} {need}"
        )
    return f"no difference that {asked} could show: {_moved(c, '')}; as much {chance}"


def _moved(c: Comparison, asked: str) -> str:
    of = f" of {asked}" if asked else ""
    if c.whole:
        ways = ("from wrong to right", "from right to wrong")
        counts = [(c.gained, ways[0]), (c.lost, ways[1])]
        (most, way), (least, _) = counts if c.gained >= c.lost else counts[::-1]
        return f"{most}{of} went {way}, {least or 'none'} the other way"
    return (
        f"the mean score of {asked or 'all'} changed by {c.difference:+.2f} "
        f"(95% interval {c.low:+.2f} to {c.high:+.2f})"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _by_place(cases: Evaluation | Iterable[Case]) -> dict[tuple[object, ...], Case]:
    listed = cases.cases if isinstance(cases, Evaluation) else tuple(cases)
    variants = list(dict.fromkeys(case.variant for case in listed))
    if len(variants) > 1:
        raise LongsealError(
            f"these are the cases of {' and '.join(variants)}: compare one model with one other"
        )
    return {(*_context(case), case.question): case for case in listed}


def _context(case: Case) -> tuple[object, ...]:
    return case.task, case.group, case.length, case.seed, case.context


def _comparison(task: str, group: str, length: int | None, found: Sequence[Pair]) -> Comparison:
    contexts: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for before, after in found:
        # Rounded: 0.1 + 0.2 - 0.3 is no difference.
        contexts[_context(before)].append(round(after.value - before.value, 9))
    moves = [move for moved in contexts.values() for move in moved]
    sums = [round(sum(moved), 9) for moved in contexts.values()]
    low, high = _interval(sums, [len(moved) for moved in contexts.values()], max(map(abs, moves)))
    return Comparison(
        base=found[0][0].variant,
        after=found[0][1].variant,
        task=task,
        group=group,
        length=length,
        questions=len(found),
        contexts=len(contexts),
        gained=sum(move > 0 for move in moves),
        lost=sum(move < 0 for move in moves),
        whole=all(case.value in (0, 1) for pair in found for case in pair),
        difference=sum(moves) / len(found),
        low=low,
        high=high,
        p=_p(sums),
    )


def _p(sums: Sequence[float]) -> float:
    """Two-sided p of the contexts' differences, each as likely one way as the other."""
    import numpy as np
    from scipy.stats import binomtest, permutation_test

    moved = [difference for difference in sums if difference]  # 0 is 0 either way
    if not moved:
        return 1.0
    if len(set(map(abs, moved))) == 1:  # then it counts only how many go which way
        return float(binomtest(sum(m > 0 for m in moved), len(moved)).pvalue)
    tested = permutation_test((moved,), np.sum, permutation_type="samples", rng=0)
    return float(tested.pvalue)


def _interval(sums: Sequence[float], counts: Sequence[int], most: float) -> tuple[float, float]:
    """95% interval of a question's mean difference.

    Args:
        sums, counts: each context's difference in all, and its questions.
        most: the greatest difference of a question.
    """
    from scipy.stats import t

    if len(sums) == 1:
        return -1.0, 1.0  # how contexts differ is not to be seen on one
    added = most or 1.0
    contexts = [*zip(sums, counts, strict=True), (added, 1), (-added, 1)]
    size, questions = len(contexts), sum(n for _, n in contexts)
    middle = sum(s for s, _ in contexts) / questions
    spread = sum((s - middle * n) ** 2 for s, n in contexts)
    error = sqrt(spread * size / (size - 1)) / questions
    reach = float(t.ppf(0.975, len(sums) - 1)) * error
    return max(-1.0, middle - reach), min(1.0, middle + reach)
