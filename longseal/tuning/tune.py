"""Learn how strongly each head, or each of its channels, should speak."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from longseal.config import TuneConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.lora import AnyAdapter
from longseal.models.load import LanguageModel
from longseal.progress import Bar, bars
from longseal.tasks import Task
from longseal.tasks.prompt import Prompts
from longseal.tuning.bound import Bound
from longseal.tuning.choose import ROUNDING, better, harmless
from longseal.tuning.gradient import memory_errors
from longseal.tuning.held_out import HeldOut, put
from longseal.tuning.ladder import Climbed, climb, mend
from longseal.tuning.learned import learned_of
from longseal.tuning.recipe import followed
from longseal.tuning.record import record_of
from longseal.tuning.replay import kept_text
from longseal.tuning.samples import Mixture
from longseal.tuning.training import Trainer


def tune(
    model: LanguageModel,
    task: Task | Sequence[Task],
    config: TuneConfig | None = None,
    *,
    folder: Path | None = None,
    log: Log | None = None,
    bar: Bar | None = None,
    **fields: Any,
) -> AnyAdapter:
    """Tune on short contexts with many questions each; choose at the wanted length, without harm.

    Paper section 3, with design decisions 6 to 9 in the place of its settings: AdamW on the deltas
    alone, loss at answer positions only, training length, step and strength chosen on held-out
    samples, other formats and general text guarded. A model that answers every held-out question as
    it is gets an adapter that changes nothing. `recipe="paper"` is the paper's own settings.

    Args:
        task: one or several; their weights stand in the config's `task`, in the same order.
        config: settings; or give its fields as keywords.
        folder: where every step is kept; steps that are there already are not made again.
        log: where losses, held-out scores and the guard's figures are kept.
        bar: where progress is shown.

    Raises:
        LongsealError: a length is beyond the model's window or too short for a task, or memory or
            the disk are full.
    """
    tasks = [task] if isinstance(task, Task) else list(task)
    given = {"task": tuple(each.name for each in tasks)} if config is None else config.model_dump()
    config = TuneConfig.model_validate(given | fields)
    if len(config.task) != len(tasks):
        raise LongsealError(
            f"the settings name {len(config.task)} tasks ({', '.join(config.task)}) and "
            f"{len(tasks)} are given: name each, in the same order"
        )
    started = monotonic()
    course = followed(config)
    prompts = Prompts(model, config.thinking)
    mixture = Mixture.of(tasks, prompts, course, model.window)
    learned = learned_of(config.kind, model, config.seed)
    with (
        bars() if bar is None else nullcontext(bar) as shown,
        memory_errors(),
        learned.attached(model.network),
    ):
        _say_what_is_longer(mixture, shown)
        judge = HeldOut(model, learned, mixture, prompts, log, shown)
        unchanged = judge.judge(None, 0, 0.0)
        climbed, chosen, paid = Climbed((), ()), unchanged, None
        if unchanged.accuracy != 1.0 or config.recipe == "paper":
            bound = Bound(model, learned, prompts, tasks, course, log, shown)
            put(learned, None, 0.0)
            replay = kept_text(model, prompts, course)
            trainer = Trainer(model, learned, mixture, course, replay, folder, log, shown)
            climbed = climb(trainer, judge, mixture, course, unchanged)
            chosen = found = climbed.best[-1]
            if config.recipe != "paper":  # which takes its last step as it is
                reads = bound.reads(climbed.state(found.step), found.step, found.strength)
                if not reads and trainer.keeps_text:
                    climbed = mend(trainer, judge, climbed)
                mended = climbed.best[-1]
                chosen = harmless(judge, climbed.state, mended, unchanged, bound)
                if mended is not found and chosen.accuracy < found.accuracy - ROUNDING:
                    weaker = harmless(judge, climbed.state, found, unchanged, bound)
                    chosen = better(chosen, weaker)
            paid = bound.harm(climbed.state(chosen.step), chosen.step, chosen.strength)
        put(learned, climbed.state(chosen.step), chosen.strength)
        lengths = [sample.length for samples in judge.samples for sample in samples]
        judged = (
            (min(lengths), max(lengths))
            if all(part.shortest is None for part in mixture.parts)
            else config.length
        )
        record = record_of(model, config, climbed, unchanged, chosen, paid, judged)
        return learned.adapter(model, record | {"seconds": round(monotonic() - started, 1)})


def _say_what_is_longer(mixture: Mixture, bar: Bar) -> None:
    """Say of which tasks no contexts can be made that are as short as training would start with."""
    for part in mixture.parts:
        if part.shortest is not None and part.shortest > part.wished:
            bar.console.print(
                f"{part.task.name} cannot be made at {part.wished:,} tokens: training starts at "
                f"{part.shortest:,}"
            )
