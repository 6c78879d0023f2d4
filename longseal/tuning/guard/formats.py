"""The formats that must not get worse, and how well they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longseal.errors import LongsealError
from longseal.models.generation import generate
from longseal.models.load import LanguageModel
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import budget, fit
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.registry import task

#: Short answers, no file, made within 640 tokens: one number in prose, one among others, several at
#: once; keys of lines, calls in code, counted words and a chain of variables.
DEFAULT = (
    "ruler/niah_single_2",
    "ruler/niah_multikey_1",
    "ruler/niah_multiquery",
    "lines",
    "code",
    "ruler/fwe",
    "ruler/vt",
)
#: A sample is made at the first of these lengths that it can be made at.
LENGTHS = (384, 512, 640, 768, 1024)
_QUESTIONS = 4  # of a format
_TOKENS = 1024  # of a format's contexts, where one holds fewer questions
_RECORDED = 16  # questions of a user's file


@dataclass(frozen=True)
class Format:
    """A task and what is asked of it."""

    task: Task
    samples: tuple[EncodedSample, ...]

    @property
    def worth(self) -> float:
        """What one question adds to the mean score; one part of it, where parts are counted."""
        parted = self.task.metric == "all"
        asked = [question for sample in self.samples for question in sample.source.questions]
        return max(1 / len(q.expected) if parted else 1.0 for q in asked) / len(asked)


@dataclass(frozen=True)
class Answered:
    """A format's scores and answers, question by question."""

    scores: tuple[float, ...]
    answers: tuple[str, ...]


def default_formats(
    prompts: Prompts, wanted: Sequence[str], length: int, seed: int
) -> list[Format]:
    """Built-in formats that are not alike a wanted one; none that cannot be made so short."""
    taken = set(map(_kind, wanted))
    made = []
    for name in DEFAULT:
        if _kind(name) in taken:
            continue
        try:
            made.append(Format(task(name), _made(prompts, task(name), length, seed)))
        except LongsealError:
            continue  # too long for the wanted length, or the window
    return made


def own_format(prompts: Prompts, given: Task, length: int, window: int | None, seed: int) -> Format:
    """A format that the user names: a file's held-out samples, or made like the built-in ones.

    Raises:
        LongsealError: the task cannot be made so short, or no sample of its file fits the window.
    """
    if not isinstance(given, Recorded):
        return Format(given, _made(prompts, given, length, seed))
    most = None if window is None else window - budget(given, prompts)
    left, samples = _RECORDED, []
    for sample in given.part("held-out"):
        encoded = prompts.encode(sample)
        if left and (most is None or encoded.length <= most):
            samples.append(encoded.only(range(min(left, len(encoded.questions)))))
            left -= len(samples[-1].questions)
    if not samples:
        raise LongsealError(
            f"no held-out sample of {given.name} fits the window of {window} tokens"
        )
    return Format(given, tuple(samples))


def ask_all(model: LanguageModel, prompts: Prompts, formats: Sequence[Format]) -> list[Answered]:
    """Answer every question of all formats side by side, greedily; score each by its own task."""
    asked = [(number, sample) for number, each in enumerate(formats) for sample in each.samples]
    found: list[dict[tuple[int, int], tuple[float, str]]] = [{} for _ in formats]
    budgets = [
        [budget(formats[number].task, prompts, q) for q in sample.source.questions]
        for number, sample in asked
    ]
    for done in generate(
        model,
        [sample for _, sample in asked],
        max_new_tokens=budgets,
        stop_tokens=prompts.stop_tokens,
    ):
        number, sample = asked[done.sample]
        judge = formats[number].task
        answer, _ = prompts.decode(done.tokens)
        score = judge.score(answer, sample.source.questions[done.question])[judge.metric]
        found[number][done.sample, done.question] = float(score), answer
    return [
        Answered(*zip(*(pair for _, pair in sorted(each.items())), strict=True)) for each in found
    ]


def _made(prompts: Prompts, given: Task, length: int, seed: int) -> tuple[EncodedSample, ...]:
    lengths = [size for size in LENGTHS if size <= length] or [length]
    for size in lengths:
        try:
            return _contexts(prompts, given, size, seed)
        except LongsealError:
            if size == lengths[-1]:
                raise
    raise AssertionError


def _contexts(prompts: Prompts, given: Task, length: int, seed: int) -> tuple[EncodedSample, ...]:
    made: list[EncodedSample] = []
    left = _QUESTIONS
    while left > 0 and (len(made) + 1) * length <= max(length, _TOKENS):
        name = f"guard/{seed}/{given.name}/{length}/{len(made)}"
        made.append(fit(prompts, given, length, left, name, training=True))
        left -= len(made[-1].questions)
    return tuple(made)


def _kind(name: str) -> str:
    """What formats that differ in details alone have in common."""
    start, _, variant = name.partition("/")
    if start == "ruler" and variant:
        return f"ruler/{variant.partition('_')[0]}"
    return start
