"""What a task is: how a sample is made and how an answer is scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from longseal.config import Part
from longseal.errors import LongsealError

#: Of the length that is asked for, what a sample has at least.
LEAST = 0.95
_PLACES: dict[Part, range] = {
    "all": range(5),
    "train": range(3),
    "held-out": range(3, 4),
    "test": range(4, 5),
}


@dataclass(frozen=True)
class Question:
    """One question about a context.

    Attributes:
        text: what follows the context in the user's turn.
        answer: the full answer that the model is tuned on, read on from `prefix`.
        expected: the references that a prediction is scored against.
        prefix: what the assistant's turn begins with, given to the model (RULER's answer prefix).
        evidence: a passage of the context, standing there once, that holds the answer; its place
            is the question's depth. Empty where there is no one place.
        fields: what else scoring needs, as JSON values.
    """

    text: str
    answer: str
    expected: tuple[str, ...]
    prefix: str = ""
    evidence: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A context and the questions that share it; the user's turn is `context + question.text`.

    Attributes:
        before: turns (role, text) before the user's last one; a system turn comes first.
        chat: False where the text is the whole prompt, without a chat template (LongBench's
            few-shot tasks).
        group: what the sample is counted under beside its task, such as a range of lengths.
    """

    context: str
    questions: tuple[Question, ...]
    before: tuple[tuple[str, str], ...] = ()
    chat: bool = True
    group: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a sample should be; the same wish gives the same sample.

    Attributes:
        size: units in the context (lines, words, documents; `Task.unit` names them).
        questions: how many should share the context; a task may give fewer, at least one.
        seed: of everything random. Draw from it by `random`, once for each purpose, so that what
            is asked does not change with the size.
        depth: where in the context the (first) answer should stand: 0 its start, 1 its end.
        training: whether to tune on it: then nothing of a published test may be in it.
        count: tokens of a text by the model's tokenizer.
    """

    size: int
    questions: int = 1
    seed: str = "0"
    depth: float | None = None
    training: bool = False
    count: Callable[[str], int] = lambda text: len(text.split())

    def random(self, purpose: str = "") -> Random:
        """A random source of its own for each purpose."""
        return Random(f"{self.seed}/{purpose}")


class ExhaustedError(LongsealError):
    """There is not enough material for a sample of the wanted size."""


class NoMaterialError(LongsealError):
    """A task needs a file that was not named."""


class Task(ABC):
    """A retrieval format.

    Attributes:
        name: what `--task` takes.
        about: what it asks, in a line.
        source: where format and score come from.
        unit: what `Wanted.size` counts, in the plural.
        max_new_tokens: tokens the model may answer with.
        metric: the score, among those that `score` returns, by which the task is judged.
        smallest: the least `Wanted.size`.
        depths: depths that an evaluation goes through, one context each; empty where the task
            spreads its answers over the context itself.
    """

    name: str
    about: ClassVar[str]
    source: ClassVar[str] = "longseal"
    unit: str
    max_new_tokens: int
    metric: str
    smallest: int = 1
    depths: tuple[float, ...] = ()

    @abstractmethod
    def sample(self, wanted: Wanted) -> Sample:
        """Make a sample.

        Raises:
            ExhaustedError: there is no material for so large a one.
        """

    @abstractmethod
    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Judge a prediction, 0 (wrong) to 1 (right), in one or more ways."""


class Recorded(Task):
    """A task whose samples are given: read from a file, not made.

    It is asked as it is. Tuning takes the samples whose place in the file leaves 0, 1 or 2 when
    divided by 5, chooses on those that leave 3, and what is left tells how much it helped. Samples
    on one context have one place, that of the first: what is tested was never trained on.
    """

    unit = "samples"

    def __init__(self, name: str, samples: Sequence[Sample]) -> None:
        self.name = name
        self.samples = tuple(samples)

    def part(self, name: Part) -> tuple[Sample, ...]:
        """The samples to train on, to choose on (`held-out`), to test on, or all of them.

        Raises:
            LongsealError: the file is too short to have that part.
        """
        contexts = [_context(sample) for sample in self.samples]
        places = {context: place for place, context in enumerate(dict.fromkeys(contexts))}
        found = tuple(
            sample
            for context, sample in zip(contexts, self.samples, strict=True)
            if places[context] % 5 in _PLACES[name]
        )
        if not found:
            raise LongsealError(
                f"{self.name} has {len(self.samples)} samples on {len(places)} contexts: tuning "
                "and testing on one file takes at least 5"
            )
        return found

    def sample(self, wanted: Wanted) -> Sample:
        """Not made: see `samples`."""
        raise LongsealError(f"the samples of {self.name} come from its file alone")


def _context(sample: Sample) -> object:
    """What samples on one context have in common; the question, where that is all there is."""
    return (sample.before, sample.context) if sample.before or sample.context else sample.questions


@dataclass(frozen=True)
class Material:
    """What the user gives a task to work with.

    Attributes:
        data: files of samples, or of what samples are made from.
        haystack: a text file, or a folder of them, to hide needles in; None for the built-in prose.
    """

    data: tuple[Path, ...] = ()
    haystack: Path | None = None


@dataclass(frozen=True)
class Family:
    """Tasks that share a file: `NAME/VARIANT`, or `NAME` where there is but one.

    Attributes:
        variants: what may stand behind the slash, and what each asks; the first is meant by the
            name alone, unless `whole`.
        make: a variant's task from the material that the user names.
        whole: the name alone means all variants (RULER: a mean of 13).
        source: where their formats and scores come from.
        takes: what the user may, or has to, give them.
    """

    name: str
    about: str
    make: Callable[[str, Material], Task]
    variants: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    source: str = "longseal"
    takes: str = "no file"
