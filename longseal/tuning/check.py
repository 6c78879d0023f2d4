"""Refuse what cannot be tuned, before any work is done or anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from longseal.config import TuneConfig
from longseal.errors import LongsealError
from longseal.models.load import LanguageModel
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import check_lengths, check_parts
from longseal.tasks.prompt import Prompts
from longseal.tuning.bound import guard_of


def check_tuning(model: LanguageModel, tasks: Sequence[Task], config: TuneConfig) -> None:
    """Refuse what `tune` would.

    Raises:
        LongsealError: a length is beyond the window or too short for a task, a file is too short to
            be parted, or a format or text that the user wants guarded cannot be read or made.
    """
    prompts = Prompts(model, config.thinking)
    if config.steps is not None and config.samples is not None:
        raise LongsealError("--steps and --samples both say how long to train: leave one out")
    if config.train_length is not None and all(isinstance(task, Recorded) for task in tasks):
        raise LongsealError("--train-length: samples of a file are as long as they are")
    fixed = () if config.train_length is None else (config.train_length,)
    for each in tasks:
        check_parts(each, "train", "held-out")
        check_lengths(prompts, each, (*config.length, *fixed), model.window)
    if config.guard is None and (config.guard_task or config.guard_text):
        raise LongsealError("--guard off looks at nothing: leave out --guard-task and --guard-text")
    if config.guard_task or config.guard_text:
        guard_of(model, prompts, tasks, config)
