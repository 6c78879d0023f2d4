"""One HTML page that says what a run found; it opens offline and fetches nothing."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from longseal.evaluation.compare import Comparison, compare, sentence, where
from longseal.evaluation.grid import grid
from longseal.evaluation.results import Evaluation
from longseal.files import new_file
from longseal.record import formats, rungs, texts
from longseal.report import wording
from longseal.report.contents import Contents
from longseal.report.figures import figures
from longseal.report.look import looks

_EXAMPLES = 4
_CLIP = 800  # characters of an example's answer


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
        "probe": contents.probe,
        "means": grid(means, scores.variants).rows,
        "explained": wording.explained(accuracies, means),
        "looks": looks(scores.variants),
        "excluded": evaluation.excluded,
        "figures": figures(contents, comparisons),
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
