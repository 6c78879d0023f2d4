"""The contexts, and the questions on them, that heads are measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from longseal.config import ProbeConfig
from longseal.errors import LongsealError
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import budget, fit
from longseal.tasks.prompt import EncodedSample, Prompts


@dataclass(frozen=True)
class Place:
    """One context of one length."""

    length: int
    number: int
    encoded: EncodedSample

    @property
    def key(self) -> dict[str, int]:
        """As the log has it."""
        return {"length": self.length, "context": self.number}


def asked(
    task: Task, prompts: Prompts, config: ProbeConfig, window: int | None, part: str
) -> list[Place]:
    """Contexts at every length until there are enough questions; of a file, its first samples.

    A file's samples count as of one length, that of the longest.

    Args:
        part: names the samples: those of one part are not those of another.

    Raises:
        LongsealError: no sample of a file fits the window.
    """
    if isinstance(task, Recorded):
        return _read(task, prompts, config, window)
    return [
        place for length in config.lengths for place in _made(task, prompts, config, length, part)
    ]


def _made(
    task: Task, prompts: Prompts, config: ProbeConfig, length: int, part: str
) -> Iterator[Place]:
    left, number = config.samples, 0
    while left:
        name = f"{part}/{config.seed}/{task.name}/{length}/{number}"
        encoded = fit(prompts, task, length, min(config.questions, left), name)
        yield Place(length, number, encoded)
        left, number = left - len(encoded.questions), number + 1


def _read(task: Recorded, prompts: Prompts, config: ProbeConfig, window: int | None) -> list[Place]:
    found: list[EncodedSample] = []
    left = config.samples
    for sample in task.samples:
        encoded = prompts.encode(sample).only(range(min(left, len(sample.questions))))
        if window is not None and encoded.length + budget(task, prompts) > window:
            continue
        found.append(encoded)
        left -= len(encoded.questions)
        if not left:
            break
    if not found:
        raise LongsealError(f"no sample of {task.name} fits the window of {window} tokens")
    longest = max(encoded.length for encoded in found)
    return [Place(longest, number, encoded) for number, encoded in enumerate(found)]
