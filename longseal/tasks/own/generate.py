"""Samples like a few examples: the format found, the content drawn anew, nothing left of theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from longseal.errors import LongsealError
from longseal.tasks.fitting import budget, fit
from longseal.tasks.haystack import Haystack
from longseal.tasks.own.content import writes
from longseal.tasks.own.examples import Example
from longseal.tasks.own.induce import Induced
from longseal.tasks.own.leaks import survivors
from longseal.tasks.own.task import OwnTask
from longseal.tasks.prompt import Prompts
from longseal.tasks.sample import Sample

if TYPE_CHECKING:  # it needs torch
    from longseal.tasks.own.writer import Writer

_TRIES = 5


@dataclass(frozen=True)
class Generated:
    """What came of it.

    Attributes:
        lengths: tokens of each sample's prompt, template included, and of its answer's budget.
    """

    samples: tuple[Sample, ...]
    lengths: tuple[int, ...]


def check_examples(examples: Sequence[Example], prompts: Prompts, window: int | None) -> None:
    """Refuse examples that the model could not read.

    Raises:
        LongsealError: one is longer than the window.
    """
    for number, example in enumerate(examples, 1):
        tokens = sum(map(prompts.count, example.texts))
        if window is not None and tokens > window:
            raise LongsealError(
                f"example {number} takes {tokens} tokens, more than the model's window of "
                f"{window}: shorten it (its records need not be all there)"
            )


def generate(
    induced: Induced,
    examples: Sequence[Example],
    prompts: Prompts,
    *,
    name: str,
    samples: int,
    length: int,
    seed: int = 0,
    haystack: Haystack | None = None,
    writer: Writer | None = None,
    done: Callable[[], None] = lambda: None,
) -> Generated:
    """Make samples of a length.

    Args:
        length: tokens that prompt and answer may take; the samples have 95% of it and more.
        writer: a language model that writes names, words and sentences of what is asked for.
        done: called after each sample.

    Raises:
        LongsealError: the length is too short, or content of the examples comes back in each try.
    """
    task = OwnTask(name, induced.format, haystack, None if writer is None else writes(writer))
    made: list[Sample] = []
    lengths: list[int] = []
    for number in range(samples):
        left: list[str] = []
        for attempt in range(_TRIES):
            encoded = fit(prompts, task, length, 1, f"{seed}/{number}/{attempt}")
            left = survivors(induced.format, examples, [encoded.source])
            if not left:
                break
        else:
            raise LongsealError(
                f"content of the examples is left in what was made ({left[0]!r}): say with --vary "
                "that it is content, or with --keep that it is format"
            )
        made.append(encoded.source)
        lengths.append(encoded.length + budget(task, prompts))
        done()
    return Generated(tuple(made), tuple(lengths))
