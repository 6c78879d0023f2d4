"""MMLU, 5-shot: which of the four letters is the likeliest to follow, as it was published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import isfinite
from pathlib import Path

from longseal.errors import LongsealError
from longseal.evaluation.continuations import Continued, log_likelihoods
from longseal.evaluation.identity import identity_of
from longseal.evaluation.results import Case, Evaluation, case_from, case_key
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.models.prefixes import shared_prefix
from longseal.progress import Bar, bars
from longseal.tasks.mmlu import LETTERS, SHOTS, Item, Subject, read_mmlu
from longseal.tasks.prompt import Prompts

_NAME, _METRIC = "mmlu", "acc"
_TOGETHER = 2048  # tokens of questions that are run after one context


@dataclass(frozen=True)
class _Asked:
    """A question as tokens, once with each letter; what is right stands in its case."""

    case: Case
    ways: tuple[tuple[int, ...], ...]


def evaluate_mmlu(
    model: LanguageModel,
    folder: Path,
    *,
    variant: str = "base",
    questions: int | None = None,
    log: Log | None = None,
    bar: Bar | None = None,
) -> Evaluation:
    """Ask MMLU's questions of the model with whatever is attached to it.

    The prompt is hendrycks/test's, without a chat template. Compared are whole continuations
    (" A" to " D", as the tokenizer writes them after the prompt), so no letter has to be one
    token. Where five answered questions do not fit the window, there are fewer, as published.
    `compare` tells whether two variants differ: by question, so that few flips are seen.

    Args:
        folder: of CSVs, `dev` and `test` (`longseal.tasks.mmlu.read_mmlu`).
        variant: what to call the model in the results.
        questions: of each subject, at most, spread evenly over its file; None for all.
        log: where cases are kept; one that it holds already, of the same model, scales and prompt,
            is not asked again.
        bar: where progress is shown.

    Returns:
        One case a question, grouped by subject.

    Raises:
        LongsealError: there is no MMLU, or a question is longer than the window.
    """
    subjects = read_mmlu(folder)
    prompts = Prompts(model)
    records = [] if log is None else log.read(event="case", variant=variant, task=_NAME)
    known = {case.key: case for case in map(case_from, records)}
    identity = identity_of(model)
    cases: list[Case] = []
    with bars() if bar is None else nullcontext(bar) as shown:
        total = sum(len(_spread(subject, questions)) for subject in subjects)
        work = shown.add_task(f"evaluate {variant}, {_NAME}", total=total)
        for subject in subjects:
            asked = _asked(subject, prompts, questions, model, variant, identity)
            done = {a.case.key: known[a.case.key] for a in asked if a.case.key in known}
            shown.update(work, advance=len(done))
            for case in _answered(model, [a for a in asked if a.case.key not in done]):
                done[case.key] = case
                if log is not None:
                    log.append({"event": "case", **asdict(case)})
                shown.update(work, advance=1)
            cases += [done[each.case.key] for each in asked]
    return Evaluation(tuple(cases))


def _spread(subject: Subject, questions: int | None) -> list[tuple[int, Item]]:
    """The questions that are asked, with their places in the file."""
    there = len(subject.items)
    count = min(there, questions or there)
    return [(i, subject.items[i]) for i in (there * n // count for n in range(count))]


def _asked(
    subject: Subject,
    prompts: Prompts,
    questions: int | None,
    model: LanguageModel,
    variant: str,
    identity: tuple[str, str],
) -> list[_Asked]:
    made = []
    for place, item in _spread(subject, questions):
        ways = _ways(subject, item, prompts, model.window)
        prompt = sha256(repr(ways).encode()).hexdigest()[:16]
        case = Case(
            key=case_key(*identity, _NAME, {"place": [subject.name, place]}, 0, prompt),
            variant=variant,
            task=_NAME,
            group=subject.name.replace("_", " "),
            length=0,
            seed=0,
            context=place,
            question=0,
            tokens=len(ways[0]),
            size=SHOTS,
            depth=None,
            wanted_depth=None,
            prompt=prompt,
            expected=(item.letter,),
            prediction="",
            thoughts=0,
            seconds=0.0,
            metric=_METRIC,
            scores={},
            **model.origin,
        )
        made.append(_Asked(case, ways))
    longest = max(each.case.tokens for each in made)
    return [replace(each, case=replace(each.case, length=longest)) for each in made]


def _ways(
    subject: Subject, item: Item, prompts: Prompts, window: int | None
) -> tuple[tuple[int, ...], ...]:
    """The prompt's tokens with each letter, with as many answered questions as fit."""
    for shots in range(SHOTS, -1, -1):
        text = subject.prompt(item, shots)
        ways = tuple(tuple(prompts.tokens(f"{text} {letter}")) for letter in LETTERS)
        if window is None or max(map(len, ways)) <= window:
            return ways
    raise LongsealError(
        f"a question of MMLU's {subject.name} is longer than the model's window of {window} tokens"
    )


def _answered(model: LanguageModel, asked: Sequence[_Asked]) -> Iterator[Case]:
    """Choose a letter for each question, those together that share a context."""
    for batch in _batches(asked):
        context = batch[0].ways[0]
        for way in (way for each in batch for way in each.ways):
            # a question keeps a token of its own before the letter
            context = context[: min(shared_prefix(context, way), len(way) - 2)]
        continued = [
            Continued(way[len(context) :], len(way) - _common(each.ways))
            for each in batch
            for way in each.ways
        ]
        found = log_likelihoods(model, context, continued)
        for number, each in enumerate(batch):
            likely = found[number * len(LETTERS) : (number + 1) * len(LETTERS)]
            letter = LETTERS[likely.index(max(likely))] if all(map(isfinite, likely)) else ""
            score = float((letter,) == each.case.expected)
            yield replace(each.case, prediction=letter, scores={_METRIC: score})


def _batches(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Questions that begin alike (mostly with the same answered ones), not too many at a time."""
    batch: list[_Asked] = []
    tokens = 0
    for each in asked:
        own = len(each.ways[0])
        shared = shared_prefix(batch[0].ways[0], each.ways[0]) if batch else own
        if batch and (shared < own / 4 or tokens + own - shared > _TOGETHER):
            yield batch
            batch, tokens = [], 0
        tokens += own - shared
        batch.append(each)
    if batch:
        yield batch


def _common(ways: Sequence[Sequence[int]]) -> int:
    """How many tokens come before the letters part."""
    return min(shared_prefix(ways[0], way) for way in ways[1:])
