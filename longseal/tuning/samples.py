"""Samples to tune on, and those held out to choose on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from longseal.config import Part, TuneConfig
from longseal.errors import LongsealError
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import budget, check_window, fit
from longseal.tasks.prompt import EncodedSample, Prompts

_CONTEXTS = 4  # in one step, where a context holds too few questions


class Samples:
    """What a tuning run sees of its task; none of it is asked by an evaluation of the same seed.

    Attributes:
        length: of the training contexts: as set, or the least that the task can be built at; None
            for a file's samples, which are as long as they are.

    Raises:
        LongsealError: a length is beyond the window, or the task cannot be made so short.
    """

    def __init__(
        self, task: Task, prompts: Prompts, config: TuneConfig, window: int | None
    ) -> None:
        self._task, self._prompts, self._config, self._window = task, prompts, config, window
        check_window(task, (config.length, config.context_length), window)
        self.length = None if isinstance(task, Recorded) else self._shortest()

    def step(self, number: int) -> list[EncodedSample]:
        """Contexts of a training step: as many as it takes for its questions, and at most 4."""
        made: list[EncodedSample] = []
        for encoded in self._training(number):
            made.append(encoded)
            questions = sum(len(each.questions) for each in made)
            if questions >= self._config.questions or len(made) == _CONTEXTS:
                return made
        return made

    def watched(self) -> EncodedSample:
        """A sample whose loss is watched during training, and which is not trained on."""
        if isinstance(self._task, Recorded):
            return next(iter(self.held_out()))
        return self._fit(f"{self.length}/held-out", self.length or 0, self._config.questions)

    def held_out(self) -> list[EncodedSample]:
        """Samples at the wanted length, to choose on."""
        left, made = self._config.held_out, []
        for encoded in self._held_out():
            encoded = encoded.only(range(min(left, len(encoded.questions))))
            made.append(encoded)
            left -= len(encoded.questions)
            if not left:
                break
        return made

    def _training(self, step: int) -> Iterator[EncodedSample]:
        questions = self._config.questions
        if self.length is not None:
            for context in count():
                seed = f"{self.length}/{step}" + (f"/{context}" if context else "")
                yield self._fit(seed, self.length, questions)
        known = self._recorded("train")
        each = -(-len(known) // self._config.steps)  # once through the file, if it is long enough
        for place in range(step * each, (step + 1) * each):
            turn, at = divmod(place, len(known))
            order = list(range(len(known)))
            Random(f"train/{self._config.seed}/{turn}").shuffle(order)
            yield known[order[at]]

    def _held_out(self) -> Iterator[EncodedSample]:
        if isinstance(self._task, Recorded):
            yield from self._recorded("held-out")
            return
        config = self._config
        for context in count():
            seed = f"held-out/{config.seed}/{self._task.name}/{config.length}/{context}"
            yield fit(
                self._prompts, self._task, config.length, config.questions, seed, training=True
            )

    def _recorded(self, part: Part) -> list[EncodedSample]:
        assert isinstance(self._task, Recorded)
        found = [self._prompts.encode(sample) for sample in self._task.part(part)]
        if self._window is None:
            return found
        longest = self._window - budget(self._task, self._prompts)  # its answer fits as well
        fitting = [encoded for encoded in found if encoded.length <= longest]
        if not fitting:
            raise LongsealError(
                f"no sample of {self._task.name} fits the window of {self._window} tokens"
            )
        return fitting

    def _shortest(self) -> int:
        """The training length; twice as long, and so on, where the task cannot be made so short."""
        config = self._config
        length = config.context_length
        while True:
            try:
                self._fit("shortest", length, 1)
                return length
            except LongsealError:
                if config.train_length is not None or length >= config.length:
                    raise
                length = min(2 * length, config.length)

    def _fit(self, name: str, length: int, questions: int) -> EncodedSample:
        seed = f"train/{self._config.seed}/{self._task.name}/{name}"
        return fit(self._prompts, self._task, length, questions, seed, training=True)
