"""What a run folder holds, read back from what the steps wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from longseal.errors import LongsealError
from longseal.evaluation.results import Case, Evaluation, case_from
from longseal.files import Log, read_json
from longseal.lora import AnyAdapter, read_adapter
from longseal.probing import Probe
from longseal.scales import Adapter, Scales

_VARIANTS = ("base", "tuned", "folded")


@dataclass(frozen=True)
class Judged:
    """A candidate's figures on held-out samples; step 0 is the unchanged base.

    Attributes:
        accuracy: share of right answers, None where it was not measured.
        loss: nats a token, None where it was not measured.
    """

    step: int
    strength: float
    accuracy: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Stage:
    """What a stage cost over all sessions: seconds, and bytes at the highest point."""

    name: str
    seconds: float
    peak_memory: int | None


@dataclass(frozen=True, eq=False)
class Contents:
    """A run folder; what it lacks is empty or None.

    Attributes:
        config: the settings, as `config.json` has them.
        sessions: one record a call of longseal, the first one first.
        evaluation: every case; variants in the order base, tuned, folded, others as they were asked
            like the tasks, lengths rising.
        steps: one record a training step (`step`, `loss` in nats a token, `tokens`).
        fold: the figures of `longseal.Folded`.
        probe: what probing found.
    """

    config: Mapping[str, Any]
    sessions: tuple[Mapping[str, Any], ...]
    evaluation: Evaluation
    steps: tuple[Mapping[str, Any], ...]
    judged: tuple[Judged, ...]
    stages: tuple[Stage, ...]
    fold: Mapping[str, Any] | None
    adapter: AnyAdapter | None
    probe: Probe | None = None

    @property
    def record(self) -> Mapping[str, Any]:
        """How the adapter was made, as its record says it; empty where there is no adapter."""
        return {} if self.adapter is None else self.adapter.record

    @property
    def scales(self) -> Scales | None:
        """The adapter's scales, if it has any."""
        return self.adapter.scales if isinstance(self.adapter, Adapter) else None

    @property
    def unchanged(self) -> bool:
        """Whether tuning ended with an adapter that changes nothing."""
        if self.scales is not None:
            return self.scales.unchanged
        chosen = self.record.get("chosen") or {}
        return chosen.get("step") == 0

    @property
    def tuned_on(self) -> dict[str, tuple[str, ...]]:
        """By variant, the tasks that the adapters of `longseal evaluate` were tuned on."""
        given = self.config.get("adapter")
        return (
            {row["name"]: tuple(row["tasks"]) for row in given} if isinstance(given, list) else {}
        )

    @classmethod
    def read(cls, folder: Path) -> Contents:
        """Read a run folder, be it whole, interrupted, or of one step alone.

        Raises:
            LongsealError: there is no such folder, no result in it, or a damaged one.
        """
        if not folder.is_dir():
            raise LongsealError(f"{folder} does not exist: name the folder of a run")
        results = folder / "results.jsonl"
        if not results.exists():
            raise LongsealError(
                f"{folder} holds no results.jsonl: name the folder that was given as --out"
            )
        config, adapter = folder / "config.json", folder / "adapter"
        try:
            events = _by_event(Log(results).read())
            contents = cls(
                config=read_json(config) if config.exists() else {},
                sessions=tuple(events.get("session", ())),
                evaluation=Evaluation(
                    _cases(events.get("case", ())), _excluded(events.get("excluded", ()))
                ),
                steps=tuple({r["step"]: r for r in events.get("step", ())}.values()),
                judged=_judged(events),
                stages=_stages(events.get("stage", ())),
                fold=events["fold"][-1] if "fold" in events else None,
                adapter=read_adapter(adapter) if adapter.exists() else None,
                probe=Probe.from_json(events["probe"][-1]) if "probe" in events else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LongsealError(
                f"{results} is damaged: {error!r}. Repair or remove that line"
            ) from error
        if not (contents.evaluation.cases or contents.steps or contents.judged or contents.probe):
            raise LongsealError(
                f"{results} holds no cases and no training steps yet: run the evaluation first"
            )
        return contents


def _by_event(records: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    events: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        events.setdefault(record["event"], []).append(record)
    return events


def _cases(records: Iterable[Mapping[str, Any]]) -> tuple[Case, ...]:
    """Sorted, and of a question that was asked again (of changed weights, say) the last answer."""
    cases = {
        (c.variant, c.task, c.group, c.length, c.seed, c.context, c.question): c
        for c in map(case_from, records)
    }
    variants = dict.fromkeys((*_VARIANTS, *(c.variant for c in cases.values())))
    tasks = dict.fromkeys(c.task for c in cases.values())
    ranks = [{name: place for place, name in enumerate(names)} for names in (variants, tasks)]
    return tuple(
        sorted(cases.values(), key=lambda c: (ranks[0][c.variant], ranks[1][c.task], c.length))
    )


def _excluded(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """By task, the questions that were too long to ask; every variant leaves out the same."""
    return {task: count for record in records for task, count in record["excluded"].items()}


def _judged(events: Mapping[str, Iterable[Mapping[str, Any]]]) -> tuple[Judged, ...]:
    """One a candidate: accuracy and loss are logged as two lines."""
    found: dict[tuple[int, float], Judged] = {}
    for by in ("accuracy", "loss"):
        for record in events.get(f"held-out {by}", ()):
            key = record["step"], record["strength"]
            found[key] = replace(found.get(key, Judged(*key)), **{by: record[by]})
    return tuple(found[key] for key in sorted(found))


def _stages(records: Iterable[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """One a name: a resumed run has worked on a stage more than once."""
    stages: dict[str, Stage] = {}
    for record in records:
        name, peak = record["stage"], record.get("peak_memory")
        before = stages.get(name, Stage(name, 0.0, None))
        peaks = [p for p in (before.peak_memory, peak) if p is not None]
        seconds = before.seconds + record["seconds"]
        stages[name] = Stage(name, seconds, max(peaks, default=None))
    return tuple(stages.values())
