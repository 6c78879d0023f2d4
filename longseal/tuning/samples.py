"""Samples of a task to tune on, and those held out to choose on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, cycle
from math import ceil
from random import Random

from longseal.config import Part, TuneConfig, weighted
from longseal.errors import LongsealError
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import budget, check_window, fit
from longseal.tasks.prompt import EncodedSample, Prompts

_CONTEXTS = 4  # in one step, where a context holds too few questions
#: Tokens of the first training contexts: half of the wanted length, but no fewer than the one and
#: no more than the other. Half the length did better at it than a quarter (docs/results.md).
SHORTEST, LONGEST = 512, 1024


class Samples:
    """What a tuning run sees of a task; none of it is asked by an evaluation of the same seed.

    Attributes:
        task: what they are samples of.
        weight: how much the task counts among those that are tuned on.
        wished: tokens that the shortest training contexts should have.
        shortest: tokens of the shortest training contexts; None for a file's samples, which are as
            long as they are.

    Raises:
        LongsealError: a length is beyond the window, or the task cannot be made so short.
    """

    def __init__(
        self,
        task: Task,
        weight: float,
        prompts: Prompts,
        config: TuneConfig,
        window: int | None,
    ) -> None:
        self.task, self.weight = task, weight
        self._prompts, self._config, self._window = prompts, config, window
        fixed = () if config.train_length is None else (config.train_length,)
        check_window(task, (*config.length, *fixed), window)
        longest = max(config.length)
        half = max(SHORTEST, min(LONGEST, longest // 2))
        self.wished = config.train_length or min(longest, half)
        self.shortest = None if isinstance(task, Recorded) else self._shortest()

    def step(self, length: int, number: int) -> list[EncodedSample]:
        """Contexts of a training step: as many as it takes for its questions, and at most 4.

        Args:
            length: tokens of a context; a file's samples do not mind.
            number: of this task's steps, from 0.
        """
        made: list[EncodedSample] = []
        for encoded in self._training(length, number):
            made.append(encoded)
            questions = sum(len(each.questions) for each in made)
            if questions >= self._config.questions or len(made) == _CONTEXTS:
                break
        return made

    def watched(self, length: int) -> EncodedSample:
        """A sample whose loss is watched during training, and which is not trained on."""
        if self.shortest is None:
            return next(iter(self.held_out()))
        length = max(length, self.shortest)
        return self._fit(f"{length}/held-out", length, self._config.questions)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample of a file that is trained on; 0 where samples are made."""
        if not isinstance(self.task, Recorded):
            return 0
        return max(sample.length for sample in self._recorded("train"))

    def held_out(self) -> list[EncodedSample]:
        """Samples at the wanted length, to choose on; of a range its ends, in turn."""
        left, made = self._config.held_out, []
        for encoded in self._held_out():
            encoded = encoded.only(range(min(left, len(encoded.questions))))
            made.append(encoded)
            left -= len(encoded.questions)
            if not left:
                break
        return made

    def _training(self, length: int, step: int) -> Iterator[EncodedSample]:
        questions = self._config.questions
        if self.shortest is not None:
            length = max(length, self.shortest)
            for context in count():
                seed = f"{length}/{step}" + (f"/{context}" if context else "")
                yield self._fit(seed, length, questions)
        known = self._recorded("train")
        held = sum(len(each.questions) for each in known) / len(known)
        contexts = min(_CONTEXTS, ceil(questions / held))  # of a step, about
        for place in count(step * contexts):
            turn, at = divmod(place, len(known))
            order = list(range(len(known)))
            Random(f"train/{self._config.seed}/{turn}").shuffle(order)
            yield known[order[at]]

    def _held_out(self) -> Iterator[EncodedSample]:
        if isinstance(self.task, Recorded):
            yield from self._recorded("held-out")
            return
        config = self._config
        ends = sorted(config.length, reverse=True)
        # Answers on one context hang together: the questions are spread over two at least, which
        # are both ends of a range.
        each = min(config.questions, -(-config.held_out // max(2, len(ends))))
        for context, length in zip(count(), cycle(ends), strict=False):
            seed = f"held-out/{config.seed}/{self.task.name}/{length}/{context}"
            yield fit(self._prompts, self.task, length, each, seed, training=True)

    def _recorded(self, part: Part) -> list[EncodedSample]:
        assert isinstance(self.task, Recorded)
        found = [self._prompts.encode(sample) for sample in self.task.part(part)]
        if self._window is None:
            return found
        longest = self._window - budget(self.task, self._prompts)  # its answer fits as well
        fitting = [encoded for encoded in found if encoded.length <= longest]
        if not fitting:
            raise LongsealError(
                f"no sample of {self.task.name} fits the window of {self._window} tokens"
            )
        return fitting

    def _shortest(self) -> int:
        """As short as is wished for; twice as long, and so on, where the task cannot be."""
        fixed, longest = self._config.train_length, max(self._config.length)
        length = self.wished
        while True:
            try:
                self._fit("shortest", length, 1)
                return length
            except LongsealError:
                if fixed is not None or length >= longest:
                    raise
                length = min(2 * length, longest)

    def _fit(self, name: str, length: int, questions: int) -> EncodedSample:
        seed = f"train/{self._config.seed}/{self.task.name}/{name}"
        return fit(self._prompts, self.task, length, questions, seed, training=True)


class Mixture:
    """Several tasks, each with its weight: a step is of one of them, in turn."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self.parts = parts
        self._whole = sum(part.weight for part in parts)

    @classmethod
    def of(
        cls, tasks: Sequence[Task], prompts: Prompts, config: TuneConfig, window: int | None
    ) -> Mixture:
        """Samples of each task, weighing what the config's `task` says, in the same order."""
        pairs = zip(tasks, config.task, strict=True)
        return cls([Samples(t, weighted(name)[1], prompts, config, window) for t, name in pairs])

    def step(self, length: int, number: int) -> list[EncodedSample]:
        """Contexts of a training step, of the task whose turn it is."""
        turns = self._turns(number + 1)
        return self.parts[turns[-1]].step(length, turns[:-1].count(turns[-1]))

    def _turns(self, steps: int) -> list[int]:
        """Which task each step is of: always the one that is furthest behind its share."""
        turns: list[int] = []
        for step in range(1, steps + 1):
            behind = [
                part.weight / self._whole * step - turns.count(place)
                for place, part in enumerate(self.parts)
            ]
            turns.append(behind.index(max(behind)))
        return turns

    def mean(self, values: Sequence[float]) -> float:
        """The mean over the tasks, by weight."""
        pairs = zip(self.parts, values, strict=True)
        return sum(part.weight * value for part, value in pairs) / self._whole
