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
from longseal.probing.audit import Chosen, choose
from longseal.probing.heads import Head, Variant, heads_of, named, pruned, without_channel
from longseal.probing.measure import Measuring, influence
from longseal.probing.quadrants import check_factors, part, rescale, two_lengths
from longseal.probing.result import Influence, Probe, Trust, agreement
from longseal.probing.side_by_side import runs_side_by_side
from longseal.progress import Bar, bars
from longseal.tasks import Task
from longseal.tasks.fitting import check_lengths
from longseal.tasks.prompt import Prompts

_FEWEST = 4  # heads that estimates can be compared on


def probe(
    model: LanguageModel,
    task: Task,
    config: ProbeConfig | None = None,
    *,
    log: Log | None = None,
    bar: Bar | None = None,
    **fields: Any,
) -> Probe:
    """Measure what becomes of the right answers when heads are pruned (paper, sections 2 and 4).

    Args:
        config: settings; or give its fields as keywords.
        log: where measurements are kept; what it holds of the same settings is not run again.
        bar: where progress is shown.

    Raises:
        LongsealError: a head does not exist, or a length is beyond the model's window or too short
            for the task.

    >>> found = probe(model, longseal.task("lines"), method="gradient")  # doctest: +SKIP
    >>> min(found.of("gradient", 1024), key=lambda head: head.change).name  # doctest: +SKIP
    'L12H7'
    """
    given = {"task": task.name} if config is None else config.model_dump()
    config = ProbeConfig.model_validate(given | fields)
    variants, channels_of = _wanted(model, config)
    if config.quadrants:
        two_lengths(config.lengths)
        for name in config.rescale:
            check_factors(name)
    check_lengths(Prompts(model, config.thinking), task, config.lengths, model.window)
    with bars() if bar is None else nullcontext(bar) as shown:
        measuring = Measuring.of(model, task, config, log, shown)
        generates = config.method in ("exact", "audit")
        base = measuring.base(answered=generates)
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
        found: list[Influence] = []
        trust: tuple[Trust, ...] = ()
        groups = bool(config.prune)  # whose estimate would be the sum over their heads
        if config.method == "tail":
            found += measuring.pruned("tail", variants, answered=False)
        elif config.method == "exact":
            found += measuring.pruned("exact", variants, answered=generates)
        if config.method in ("gradient", "audit") or channels_of is not None:
            changes = measuring.slopes(channels_of)
            found += _estimates(changes, variants, measuring.lengths)
        if config.method == "audit":
            chosen = None if groups or channels_of else _chosen(found, model, config)
            audited = variants if chosen is None else [pruned([h], model.sites) for h in chosen.all]
            exact = measuring.pruned("exact", audited, answered=generates)
            trust = _trust(found, exact, chosen)
            notes += _doubts(trust)
            found += exact
        result = Probe(tuple(base), tuple(found), trust, None, tuple(notes))
        if config.quadrants:
            parted = part(result.best_known)
            result = replace(result, quadrants=rescale(model, task, config, parted, log, shown))
    return result


def _wanted(model: LanguageModel, config: ProbeConfig) -> tuple[list[Variant], Head | None]:
    """What is pruned: the groups that were named, a head's channels, or every head by itself."""
    sites = model.sites
    if config.channels is None:
        groups = [(name, named(name, sites)) for name in config.prune]
        groups = groups or [(str(head), [head]) for head in heads_of(sites)]
        return [pruned(heads, sites, name) for name, heads in groups], None
    if config.prune:
        raise LongsealError("--channels looks at the channels of one head: leave --prune out")
    heads = named(config.channels, sites)
    if len(heads) != 1:
        raise LongsealError(f"--channels takes one head such as {heads[0]}")
    width = next(site.width for site in sites if site.layer == heads[0].layer)
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
        for head in heads_of(model.sites)
    }
    return choose(estimates, config.ends, config.drawn, config.seed)


def _trust(
    estimated: Sequence[Influence], exact: Sequence[Influence], chosen: Chosen | None
) -> tuple[Trust, ...]:
    """Agreement at each length, over all that was audited and over what was drawn at random."""
    guesses = {(each.length, each.name): each.change for each in estimated}
    drawn = set() if chosen is None else set(map(str, chosen.drawn))
    found = []
    for length in dict.fromkeys(each.length for each in exact):
        here = [each for each in exact if each.length == length]
        random = [each for each in here if each.name in drawn]
        for among, heads in (("audited", here), ("random", random)):
            if len(heads) >= _FEWEST:
                found.append(
                    agreement(
                        length,
                        "audited" if among == "audited" else "random",
                        [guesses[length, each.name] for each in heads],
                        [each.change for each in heads],
                    )
                )
    return tuple(found)


def _doubts(trust: Sequence[Trust]) -> list[str]:
    """What to say where estimates and exact changes rank heads otherwise."""
    return [
        f"at {each.length:,} tokens the estimate ranks the audited heads otherwise than exact "
        f"pruning does (correlation {each.rank:.2f}): trust the exact figures alone there"
        for each in trust
        if each.among == "audited" and not each.rank >= _TRUSTED
    ]


_TRUSTED = 0.8  # rank correlation from which an estimate is called one
