"""One HTML page that says what a run found; it opens offline and fetches nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from longseal.evaluation.compare import Comparison, compare, sentence, where
from longseal.evaluation.grid import grid
from longseal.evaluation.matrix import matrices
from longseal.evaluation.results import Accuracy, AtDepth, Evaluation, label
from longseal.files import new_file
from longseal.record import formats, rungs, texts
from longseal.report import charts, wording
from longseal.report.contents import Contents
from longseal.report.look import Chart, looks

_EXAMPLES = 4
_CLIP = 800  # characters of an example's answer


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


def report(folder: str | Path) -> Path:
    """Write `report.html` into a run folder: the results, how they came about, how to repeat them.

    Sections that the folder has no data for are left out.

    Raises:
        LongsealError: the folder is missing, holds no results, or cannot be written to.
    """
    folder = Path(folder)
    contents = Contents.read(folder)
    text = _environment().get_template("page.html.j2").render(_view(contents), bundle=_bundle())
    path = folder / "report.html"
    with new_file(path) as partial:
        partial.write_text(text, "utf-8")
    return path


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("longseal.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=wording.percent,
        share=wording.share,
        count=wording.count,
        interval=wording.interval,
        verdict=wording.verdict,
        where=where,
        sentence=sentence,
        duration=wording.duration,
        gigabytes=lambda size: f"{size / 1e9:.2f} GB",
        points=lambda difference: f"{100 * difference:+.1f}",
        thousands=lambda number: f"{number:,}",
        clip=lambda text: text if len(text) <= _CLIP else f"{text[:_CLIP]} …",
        command=shlex.join,
        indented=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    )
    return environment


@cache
def _bundle() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script, in the version that the charts are made for."""
    version = alt.SCHEMA_VERSION.removeprefix("v").rsplit(".", 1)[0]
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    return Markup(script.replace("</script", r"<\/script").replace("<!--", r"<\!--"))


def _view(contents: Contents) -> dict[str, Any]:
    """All that the template shows."""
    evaluation, adapter, record = contents.evaluation, contents.adapter, contents.record
    compared = wording.changes(evaluation)
    comparisons = _comparisons(evaluation, compared)
    headline = wording.headline(contents)
    accuracies, means = evaluation.accuracy(), evaluation.mean()
    scores = grid(accuracies)
    return {
        "headline": headline,
        "sentence": None if record.get("sentence") == headline else record.get("sentence"),
        "model": contents.config.get("model") or (adapter.base if adapter else None),
        "tasks": wording.asked(_tasks(contents)),
        "scores": scores,
        "means": grid(means, scores.variants).rows,
        "explained": wording.explained(accuracies, means),
        "looks": looks(scores.variants),
        "excluded": evaluation.excluded,
        "figures": _figures(contents, comparisons),
        "adapter": adapter,
        "record": record,
        "learned": _learned(contents),
        "formats": formats(record),
        "texts": texts(record),
        "rungs": rungs(record),
        "reach": _reach(contents),
        "steps": contents.steps,
        "judged": contents.judged,
        "fold": contents.fold,
        "stages": contents.stages,
        "comparisons": comparisons,
        "gained": wording.spread_out(compared.gained, _EXAMPLES) if compared else [],
        "lost": wording.spread_out(compared.lost, 1) if compared else [],
        "sessions": contents.sessions,
        "seeds": sorted({c.seed for c in evaluation.cases}),
        "settings": dict(contents.config) or record.get("settings", {}),
    }


def _comparisons(
    evaluation: Evaluation, compared: wording.Changes | None
) -> dict[str, tuple[Comparison, ...]]:
    """With the base, by variant: of several adapters all, else of the folded or the tuned model."""
    if compared is not None:
        return {compared.after: compare(*zip(*compared.pairs, strict=True))}
    adapters = wording.compared_adapters(evaluation)
    return {name: compare(*zip(*both, strict=True)) for name, both in adapters.items()}


def _learned(contents: Contents) -> str:
    """What was learned, such as `one scale a head`."""
    if contents.adapter is None:
        return ""
    kind = contents.adapter.kind
    return f"one scale a {kind}" if contents.scales else f"kind {kind}"


def _tasks(contents: Contents) -> list[str]:
    """The tasks' names as they were asked for (`ruler` for all 13), else as they are."""
    found = contents.config.get("task") or [c.task for c in contents.evaluation.cases]
    return [found] if isinstance(found, str) else list(dict.fromkeys(found))


def _reach(contents: Contents) -> tuple[float, float] | None:
    """The smallest and the largest scale."""
    if contents.scales is None:
        return None
    deltas = contents.scales.deltas.values()
    return 1 + min(float(d.min()) for d in deltas), 1 + max(float(d.max()) for d in deltas)


def _figures(contents: Contents, comparisons: Mapping[str, Sequence[Comparison]]) -> list[Figure]:
    figures = _depth_figures(contents.evaluation)
    lengths = {(c.task, c.group, c.length) for c in contents.evaluation.cases}
    if len(comparisons) > 1:
        figures += _matrix_figures(contents, [c for found in comparisons.values() for c in found])
    if len(comparisons) <= 1 or len(lengths) > len({place[:2] for place in lengths}):
        figures += _accuracy_figures(contents.evaluation)
    scales = contents.scales
    if scales is not None and not scales.unchanged:
        figures.append(
            _figure(
                "scales",
                "Scale of every head",
                "Orange speaks louder than in the base, blue more softly; grey is 1, unchanged."
                + (" Shown: the mean of a head's channels." if scales.kind == "channel" else ""),
                charts.scales_chart(scales),
            )
        )
        if scales.kind == "channel":
            figures.append(
                _figure(
                    "scales",
                    "Spread of the channels in every head",
                    "Darker heads have channels that were changed more unlike one another.",
                    charts.spread_chart(scales),
                )
            )
    if contents.steps:
        figures.append(
            _figure(
                "training",
                "Training",
                "Loss at answer tokens. Above the plot: how many held-out questions the candidates "
                "of that step answered right, at strength 1 or the one named.",
                charts.training_chart(contents.steps, contents.judged),
            )
        )
    return figures


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
