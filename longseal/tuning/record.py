"""What a tuning run says of itself: kept in the adapter, shown in terminal and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from longseal.config import TuneConfig
from longseal.models.load import LanguageModel
from longseal.models.work import operations
from longseal.tuning.guard import Harm
from longseal.tuning.held_out import Candidate
from longseal.tuning.ladder import Climbed


def record_of(
    model: LanguageModel,
    config: TuneConfig,
    climbed: Climbed,
    unchanged: Candidate,
    chosen: Candidate,
    harm: Harm | None,
    judged: Sequence[int],
) -> dict[str, Any]:
    """The record of a run, as JSON values.

    Args:
        judged: tokens of the held-out samples, the least and the most.
        harm: what the guard found of the chosen candidate; None where nobody looked.
    """
    rungs = [
        {
            "train_length": rung.length,
            "steps": rung.trajectory.last - rung.trajectory.first,
            "seconds": rung.seconds,
            "accuracy": top.accuracy,
            "stopped": rung.stopped,
            "mends": rung.keeps > 1.0,
        }
        for rung, top in zip(climbed.rungs, climbed.best, strict=True)
    ]
    found = climbed.best[-1] if climbed.best else unchanged
    refused = found if found.step and not chosen.step else None
    guard = None
    if harm is not None:
        base, now = harm.base.to_json(), harm.now.to_json()
        guard = {"bound": config.guard, "base": base, "chosen": now}
    return {
        "task": ", ".join(unchanged.by_task),
        "settings": config.model_dump(mode="json"),
        "rungs": rungs,
        "train_length": max((rung.length for rung in climbed.rungs), default=None),
        "full_length": _full_length(model, config, climbed),
        "steps": sum(rung["steps"] for rung in rungs),
        "chosen": asdict(chosen),
        "refused": None if refused is None else asdict(refused),
        "held_out_base": unchanged.accuracy,
        "held_out": {
            task: {"base": base, "chosen": chosen.by_task[task]}
            for task, base in unchanged.by_task.items()
        },
        "guard": guard,
        "sentence": sentence(judged, unchanged, chosen, refused, harm),
        "stopped": next((rung.stopped for rung in climbed.rungs if rung.stopped), None),
        "skipped_layers": model.structure.by_reason(),
    }


def sentence(
    judged: Sequence[int],
    unchanged: Candidate,
    chosen: Candidate,
    refused: Candidate | None,
    harm: Harm | None,
) -> str:
    """What was gained and what was paid, in one sentence."""
    lengths = " to ".join(f"{length:,}" for length in dict.fromkeys(judged))
    gained = "; ".join(
        f"{task} {base:.2f} to {chosen.by_task[task]:.2f}"
        for task, base in unchanged.by_task.items()
    )
    paid = "nobody looked at what was paid" if harm is None else f"paid: {harm.sentence}"
    if refused is not None:
        paid = (
            f"nothing was changed, for what gained most ({refused.accuracy:.2f} at step "
            f"{refused.step}) cost more elsewhere than --guard allows, weakened or not"
        )
    elif chosen.step == 0:
        paid = "nothing was changed"
    return f"Gained on held-out samples of {lengths} tokens: {gained}; {paid}."


def _full_length(
    model: LanguageModel, config: TuneConfig, climbed: Climbed
) -> dict[str, Any] | None:
    """What the same steps would have taken on contexts of the full length, by operations."""
    longest = max(config.length)
    if not climbed.rungs or climbed.rungs[-1].length >= longest:
        return None
    seconds = [
        rung.seconds * operations(model, longest) / operations(model, rung.length)
        for rung in climbed.rungs
    ]
    return {"length": longest, "seconds": round(sum(seconds))}
