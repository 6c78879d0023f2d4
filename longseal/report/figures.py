"""The page's charts, each with what it shows in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longseal.evaluation.compare import Comparison
from longseal.evaluation.matrix import matrices
from longseal.evaluation.results import Accuracy, AtDepth, Evaluation, label
from longseal.report import charts
from longseal.report.contents import Contents
from longseal.report.figure import Figure
from longseal.report.probe_figures import probe_figures


def figures(contents: Contents, comparisons: Mapping[str, Sequence[Comparison]]) -> list[Figure]:
    """All charts of a run folder, in no order but that of their sections."""
    found = _depth_figures(contents.evaluation)
    lengths = {(c.task, c.group, c.length) for c in contents.evaluation.cases}
    if len(comparisons) > 1:
        found += _matrix_figures(contents, [c for each in comparisons.values() for c in each])
    if len(comparisons) <= 1 or len(lengths) > len({place[:2] for place in lengths}):
        found += _accuracy_figures(contents.evaluation)
    if contents.probe is not None:
        found += probe_figures(contents.probe)
    scales = contents.scales
    if scales is not None and not scales.unchanged:
        found.append(
            Figure.of(
                "scales",
                "Scale of every head",
                "Orange speaks louder than in the base, blue more softly; grey is 1, unchanged."
                + (" Shown: the mean of a head's channels." if scales.kind == "channel" else ""),
                charts.scales_chart(scales),
            )
        )
        if scales.kind == "channel":
            found.append(
                Figure.of(
                    "scales",
                    "Spread of the channels in every head",
                    "Darker heads have channels that were changed more unlike one another.",
                    charts.spread_chart(scales),
                )
            )
    if contents.steps:
        found.append(
            Figure.of(
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
        Figure.of(
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
        Figure.of(
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
        Figure.of(
            "depth",
            f"{task}: accuracy by length and depth",
            "Depth 0 is the start of the context, 1 its end.",
            heatmap_chart(rows),
        )
        for task, rows in several.items()
    ]
