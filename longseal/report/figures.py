"""The page's charts, each with what it shows in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longseal.evaluation.compare import Comparison
from longseal.evaluation.matrix import matrices
from longseal.evaluation.results import Accuracy, AtDepth, Evaluation, label
from longseal.probing import Probe
from longseal.report import charts, probing
from longseal.report.contents import Contents
from longseal.report.look import Chart


@dataclass(frozen=True)
class Figure:
    """A chart in the page, with what it shows in words.

    Attributes:
        section: where it stands.
    """

    section: str
    title: str
    caption: str
    spec: dict[str, Any]


def figures(contents: Contents, comparisons: Mapping[str, Sequence[Comparison]]) -> list[Figure]:
    """All charts of a run folder, in no order but that of their sections."""
    found = _depth_figures(contents.evaluation)
    lengths = {(c.task, c.group, c.length) for c in contents.evaluation.cases}
    if len(comparisons) > 1:
        found += _matrix_figures(contents, [c for each in comparisons.values() for c in each])
    if len(comparisons) <= 1 or len(lengths) > len({place[:2] for place in lengths}):
        found += _accuracy_figures(contents.evaluation)
    if contents.probe is not None:
        found += _probe_figures(contents.probe)
    scales = contents.scales
    if scales is not None and not scales.unchanged:
        found.append(
            _figure(
                "scales",
                "Scale of every head",
                "Orange speaks louder than in the base, blue more softly; grey is 1, unchanged."
                + (" Shown: the mean of a head's channels." if scales.kind == "channel" else ""),
                charts.scales_chart(scales),
            )
        )
        if scales.kind == "channel":
            found.append(
                _figure(
                    "scales",
                    "Spread of the channels in every head",
                    "Darker heads have channels that were changed more unlike one another.",
                    charts.spread_chart(scales),
                )
            )
    if contents.steps:
        found.append(
            _figure(
                "training",
                "Training",
                "Loss at answer tokens. Above the plot: how many held-out questions the candidates "
                "of that step answered right, at strength 1 or the one named.",
                charts.training_chart(contents.steps, contents.judged),
            )
        )
    return found


def _matrix_figures(contents: Contents, comparisons: Sequence[Comparison]) -> list[Figure]:
    """Every adapter on every task, a chart a length."""
    from longseal.report.matrix import matrix_chart

    found = matrices(contents.evaluation, comparisons, contents.tuned_on)
    framed = any(cell and cell.learned for matrix in found for row in matrix.rows for cell in row)
    return [
        _figure(
            "matrix",
            "Every adapter on every task"
            + (f", at {matrix.length:,} tokens" if matrix.length and len(found) > 1 else ""),
            "Mean scores. Blue does better than the base, orange worse."
            + (" Framed, with a star: the adapter was tuned on that task." if framed else "")
            if place == 0
            else "",
            matrix_chart(matrix),
        )
        for place, matrix in enumerate(found)
    ]


def _accuracy_figures(evaluation: Evaluation) -> list[Figure]:
    """One a task, the means of families first; lower ones where there are many."""
    tasks: dict[str, list[Accuracy]] = {}
    for accuracy in (*evaluation.mean(), *evaluation.accuracy()):
        tasks.setdefault(accuracy.task, []).append(accuracy)
    return [
        _figure(
            "accuracy",
            "Accuracy over length" if len(tasks) == 1 else task,
            "By free generation, with 95% intervals. Points at one length stand side by side so "
            "that none hides another."
            if place == 0
            else "",
            charts.accuracy_chart(found, 300 if len(tasks) <= 3 else 180),
        )
        for place, (task, found) in enumerate(tasks.items())
    ]


def _depth_figures(evaluation: Evaluation) -> list[Figure]:
    """A heat map of each task that was asked at several depths."""
    tasks: dict[str, list[AtDepth]] = {}
    for row in evaluation.by_depth():
        tasks.setdefault(label(row.task, row.group), []).append(row)
    several = {task: rows for task, rows in tasks.items() if len({row.depth for row in rows}) > 1}
    if not several:
        return []
    from longseal.report.heatmap import heatmap_chart

    return [
        _figure(
            "depth",
            f"{task}: accuracy by length and depth",
            "Depth 0 is the start of the context, 1 its end.",
            heatmap_chart(rows),
        )
        for task, rows in several.items()
    ]


def _figure(section: str, title: str, caption: str, chart: Chart) -> Figure:
    """The page has its own colours, light or dark: a chart's background is left to it."""
    spec = chart.to_dict()
    spec["config"]["background"] = "transparent"
    return Figure(section, title, caption, spec)


def _probe_figures(found: Probe) -> list[Figure]:
    """Maps of heads, or bars of what else was pruned; quadrants; how far estimates hold."""
    made = []
    known = found.best_known
    single = any(each.of_head for each in known)
    for base in found.base:
        here = [each for each in known if each.length == base.length]
        title = f"What becomes of the right answers, at {base.length:,} tokens"
        if single:
            chart = probing.influence_chart(here)
            caption = (
                "Orange heads help: without them the right answers are less likely. Blue ones harm."
            )
        else:
            chart, caption = probing.bars_chart(here), "Below 0 it helps, above 0 it harms."
        made.append(_figure("probe", title, caption, chart))
    if found.quadrants is not None:
        title = "Heads at two lengths"
        caption = (
            "Q1: the right answers are more likely without the head at both lengths; Q3: less "
            "likely at both."
        )
        chart = probing.quadrants_chart(known, found.quadrants)
        made.append(_figure("probe", title, caption, chart))
    if found.trust:
        title, caption = "Estimate and exact pruning", "Each point is a head that was audited."
        chart = probing.trust_chart(found.of("gradient"), found.of("exact"), found.trust)
        made.append(_figure("probe", title, caption, chart))
    return made
