"""Learn how strongly each head, or each of its channels, should speak."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

from longseal.config import Kind, TuneConfig
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar, bars
from longseal.scales import Adapter, Scales
from longseal.tasks import Task
from longseal.tasks.prompt import Prompts
from longseal.tuning.choose import Candidate, HeldOut, choose
from longseal.tuning.memory import checkpointing, needs_checkpointing
from longseal.tuning.samples import Samples
from longseal.tuning.step import loss
from longseal.tuning.trajectory import Optimisation, Trajectory

#: How far a scale may go in a whole run: the learning rates of all steps together.
MOVEMENT: dict[Kind, float] = {"channel": 0.32, "head": 0.6}


def tune(
    model: LanguageModel,
    task: Task,
    config: TuneConfig | None = None,
    *,
    folder: Path | None = None,
    log: Log | None = None,
    bar: Bar | None = None,
    **fields: Any,
) -> Adapter:
    """Tune scales on short contexts with many questions each, and choose them at the wanted length.

    Paper section 3, with design decisions 6 to 9 in the place of its settings: AdamW on the deltas
    alone, loss at answer positions only, step and strength chosen on held-out samples. A model that
    answers every held-out question as it is gets an adapter that changes nothing.

    Args:
        config: settings; or give its fields as keywords.
        folder: where every step is kept; steps that are there already are not made again.
        log: where losses and held-out scores are kept.
        bar: where progress is shown.

    Raises:
        LongsealError: a length is beyond the model's window, or too short for the task.
    """
    config = config or TuneConfig(task=task.name, **fields)
    prompts = Prompts(model, config.thinking)
    started = monotonic()
    samples = Samples(task, prompts, config, model.window)
    judge = HeldOut(model, task, prompts, samples.held_out(), log)
    trajectory = Trajectory(folder)
    with bars() if bar is None else nullcontext(bar) as shown:
        work = shown.add_task("judge the base", total=1)
        unchanged = judge.judge([], 0, 0.0)
        shown.update(work, advance=1)
        stopped = None
        if unchanged.accuracy != 1.0:
            stopped = _train(model, samples, config, trajectory, log, shown)
        work = shown.add_task("choose on held-out samples", total=1)
        chosen = choose(judge, trajectory.scales, unchanged)
        shown.update(work, advance=1)
    record = {
        "task": task.name,
        "settings": config.model_dump(mode="json"),
        "train_length": samples.length,
        "steps": len(trajectory.scales),
        "chosen": asdict(chosen),
        "held_out_base": unchanged.accuracy,
        "stopped": stopped,
        "seconds": round(monotonic() - started, 1),
        "skipped_layers": model.structure.by_reason(),
    }
    return Adapter.of(model, _scales(config.kind, model, trajectory, chosen), record)


def _train(
    model: LanguageModel,
    samples: Samples,
    config: TuneConfig,
    trajectory: Trajectory,
    log: Log | None,
    bar: Bar,
) -> str | None:
    """Make the steps that are missing. Returns why it ended early, None where it did not."""
    optimisation = Optimisation.of(config.kind, model.sites)
    trajectory.resume(optimisation)
    first = len(trajectory.scales)
    watched = samples.watched()
    saves_memory = first < config.steps and needs_checkpointing(model, config.kind, watched)
    saving = checkpointing(model.network) if saves_memory else nullcontext()
    work = bar.add_task("tune", total=config.steps, completed=first)
    with saving, optimisation.scales.attached(model.network):
        for step in range(first, config.steps):
            contexts = samples.step(step)
            value = sum(loss(model, each, backward=True) for each in contexts) / len(contexts)
            optimisation.step(_rate(config, step))
            if not (isfinite(value) and optimisation.scales.finite):
                return f"the loss or a scale was not finite in step {step + 1}: kept step {step}"
            trajectory.keep(optimisation)
            if log is not None:
                done = {"step": step + 1, "tokens": contexts[0].length, "loss": value}
                log.append({"event": "step", **done})
                if (step + 1) % max(1, config.steps // 4) == 0:
                    done = {"step": step + 1, "strength": 1.0, "loss": loss(model, watched)}
                    log.append({"event": "held-out loss", **done})
            bar.update(work, advance=1)
    return None


def _rate(config: TuneConfig, step: int) -> float:
    """The learning rate of a step (from 0): falls in a line to 0, all steps' sum is the budget."""
    return MOVEMENT[config.kind] * 2 * (config.steps - step) / (config.steps * (config.steps + 1))


def _scales(kind: Kind, model: LanguageModel, trajectory: Trajectory, chosen: Candidate) -> Scales:
    if chosen.step == 0:
        return Scales.zeros(kind, model.sites)
    return trajectory.scales[chosen.step - 1].times(chosen.strength)
