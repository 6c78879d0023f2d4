"""Find out which heads help retrieval, and which harm it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import mean
from typing import Any

from longseal.config import ProbeConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.models.sites import Head, seats
from longseal.probing.audit import Chosen, agreements, choose, doubts
from longseal.probing.heads import Variant, named, pruned, without_channel
from longseal.probing.measure import Measuring, influence
from longseal.probing.quadrants import check_factors, part, rescale, two_lengths
from longseal.probing.relations import relations
from longseal.probing.result import Influence, Probe, Trust
from longseal.probing.side_by_side import runs_side_by_side
from longseal.probing.tuned import tuned
from longseal.progress import Bar, bars
from longseal.scales import Adapter
from longseal.tasks import Recorded, Task
from longseal.tasks.fitting import check_lengths
from longseal.tasks.prompt import Prompts


def probe(
    model: LanguageModel,
    task: Task,
    config: ProbeConfig | None = None,
    *,
    adapter: Adapter | None = None,
    log: Log | None = None,
    bar: Bar | None = None,
    **fields: Any,
) -> Probe:
    """Measure what becomes of the right answers when heads are pruned (paper, sections 2 and 4).

    Args:
        config: settings; or give its fields as keywords.
        adapter: scales to look at beside: the model without them is what is probed.
        log: where measurements are kept; what it holds of the same settings is not run again.
        bar: where progress is shown.

    Raises:
        LongsealError: a head does not exist, a length is beyond the model's window or too short
            for the task, or the adapter is another model's.

    >>> found = probe(model, longseal.task("lines"), method="gradient")  # doctest: +SKIP
    >>> min(found.of("gradient", 1024), key=lambda head: head.change).name  # doctest: +SKIP
    'L12H7'
    """
    given = {"task": task.name} if config is None else config.model_dump()
    config = ProbeConfig.model_validate(given | fields)
    check(model, task, config, adapter)
    variants, channels_of = _wanted(model, config)
    with bars() if bar is None else nullcontext(bar) as shown:
        measuring = Measuring.of(model, task, config, log, shown)
        generates = config.method in ("exact", "audit")
        base = measuring.unpruned(answered=generates or adapter is not None)
        notes = []
        if generates and not any(each.accuracy for each in base):
            generates = False
            notes.append(
                f"the model answers no question of {task.name} right as it is, so that influence "
                "by accuracy is flat: look at the log-probability of the right answers"
            )
        if config.method != "gradient" and not runs_side_by_side(model.network, model.sites):
            notes.append(
                f"the layers of {type(model.network).__name__} cannot be run one by one: each "
                "pruned head takes a forward pass of its own"
            )
        found, trust = _influences(measuring, variants, channels_of, config, answered=generates)
        notes += doubts(trust)
        result = Probe(tuple(base), tuple(found), trust)
        if config.looks:
            try:
                result = replace(result, looks=tuple(measuring.looks()))
            except LongsealError as error:
                notes.append(str(error))
        if adapter is not None:
            result = replace(result, tuned=tuned(measuring, adapter, notes))
        scales = {} if result.tuned is None else result.tuned.scales
        known = result.best_known
        result = replace(result, relations=relations(known, result.looks, scales))
        if config.quadrants:
            quadrants = rescale(model, task, config, part(known), log, shown)
            result = replace(result, quadrants=quadrants)
    return replace(result, notes=tuple(notes))


def check(
    model: LanguageModel, task: Task, config: ProbeConfig, adapter: Adapter | None = None
) -> None:
    """Refuse what cannot be probed, before any work is done and any folder made.

    Raises:
        LongsealError: see `probe`.
    """
    _wanted(model, config)
    if config.quadrants:
        if isinstance(task, Recorded):
            raise LongsealError(
                f"--quadrants compare two lengths, and the samples of {task.name} are as long as "
                "they are: probe a task that is made"
            )
        two_lengths(config.lengths)
        for name in config.rescale:
            check_factors(name)
    if adapter is not None:
        adapter.check_base(model)
    check_lengths(Prompts(model, config.thinking), task, config.lengths, model.window)


def _influences(
    measuring: Measuring,
    variants: Sequence[Variant],
    channels_of: Head | None,
    config: ProbeConfig,
    *,
    answered: bool,
) -> tuple[list[Influence], tuple[Trust, ...]]:
    """What becomes of the answers, found the way that was asked for; and how far it holds."""
    found: list[Influence] = []
    if config.method == "tail":
        found += measuring.pruned("tail", variants, answered=False)
    elif config.method == "exact":
        found += measuring.pruned("exact", variants, answered=answered)
    if config.method in ("gradient", "audit") or channels_of is not None:
        changes = measuring.slopes(channels_of)
        found += _estimates(changes, variants, measuring.lengths)
    if config.method != "audit":
        return found, ()
    sites = measuring.model.sites
    # The estimate of a group would be the sum over its heads, so that ranking it says little.
    whole = bool(config.prune) or channels_of is not None
    chosen = None if whole else _chosen(found, measuring.model, config)
    audited = variants if chosen is None else [pruned([head], sites) for head in chosen.all]
    exact = measuring.pruned("exact", audited, answered=answered)
    return [*found, *exact], agreements(found, exact, chosen)


def _wanted(model: LanguageModel, config: ProbeConfig) -> tuple[list[Variant], Head | None]:
    """What is pruned: the groups that were named, a head's channels, or every head by itself."""
    sites = model.sites
    if config.channels is None:
        groups = [(name, named(name, sites)) for name in config.prune]
        groups = groups or [(str(head), [head]) for head in seats(sites)]
        return [pruned(heads, sites, name) for name, heads in groups], None
    if config.prune:
        raise LongsealError("--channels looks at the channels of one head: leave --prune out")
    heads = named(config.channels, sites)
    if len(heads) != 1:
        raise LongsealError(f"--channels takes one head such as {heads[0]}")
    width = seats(sites)[heads[0]][0].width
    return [without_channel(heads[0], channel, sites) for channel in range(width)], heads[0]


def _estimates(
    changes: Mapping[tuple[int, str], Sequence[float]],
    variants: Sequence[Variant],
    lengths: Sequence[int],
) -> list[Influence]:
    """First-order influences; of a group, the sum over its heads."""
    found = []
    for length in lengths:
        for variant in variants:
            parts = [changes[length, name] for name in variant.parts]
            sums = [sum(each) for each in zip(*parts, strict=True)]
            found.append(influence("gradient", variant.name, length, sums, None))
    return found


def _chosen(found: Sequence[Influence], model: LanguageModel, config: ProbeConfig) -> Chosen:
    """Heads to confirm, by their estimates' mean over the lengths."""
    estimates = {
        head: mean(each.change for each in found if each.name == str(head))
        for head in seats(model.sites)
    }
    return choose(estimates, config.ends, config.drawn, config.seed)
