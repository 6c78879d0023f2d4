"""What all charts share: colours, type, size, and how they are saved, offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import altair as alt

from longseal.errors import LongsealError
from longseal.files import new_file

Chart = alt.Chart | alt.LayerChart

#: Colours that are told apart by colour-blind readers, on white and on black.
GREY, BLUE, ORANGE = "#858b95", "#2f7fd8", "#e2761b"


@dataclass(frozen=True)
class Look:
    """How a variant is drawn: colour, shape of its points, dashes of its line."""

    colour: str
    shape: str = "circle"
    dash: tuple[int, int] = (1, 0)


_LOOKS = {
    "base": Look(GREY),
    "tuned": Look(BLUE, "square"),
    "folded": Look(ORANGE, "diamond", (5, 4)),
}
#: For adapters with names of their own (the colours are Okabe and Ito's, darkened for white).
_MORE = ("#2f7fd8", "#e2761b", "#0a8f69", "#b75f97", "#8a6d00", "#7a5fd0")
_SHAPES = ("square", "diamond", "triangle-up", "cross", "triangle-down", "circle")


def looks(variants: Sequence[str]) -> dict[str, Look]:
    """A look for each variant; six colours and then, in other shapes, the same ones again."""
    found = {variant: _LOOKS[variant] for variant in variants if variant in _LOOKS}
    for i, variant in enumerate(variant for variant in variants if variant not in _LOOKS):
        found[variant] = Look(_MORE[i % 6], _SHAPES[(i + i // 6) % 6])
    return found


_CONFIG = alt.Config(
    font="system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    background="white",
    padding=8,
    view=alt.ViewConfig(stroke=None, continuousWidth=680, discreteWidth=680),
    axis=alt.AxisConfig(
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        titlePadding=8,
        labelColor="#555",
        titleColor="#555",
        gridColor="#e4e4e0",
        domainColor="#bbb",
        tickColor="#bbb",
    ),
    legend=alt.LegendConfig(
        orient="top",
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        labelColor="#333",
        titleColor="#555",
        symbolSize=90,
    ),
    text=alt.MarkConfig(color="#333"),
)
_FORMATS: dict[str, Literal["png", "svg", "pdf", "html"]] = {
    ".png": "png",
    ".pdf": "pdf",
    ".svg": "svg",
    ".html": "html",
}


def finish(chart: Chart, height: int) -> Chart:
    """In a page a chart is as wide as its place, in a picture 680 pixels."""
    finished: Chart = chart.properties(width="container", height=height, config=_CONFIG)
    return finished


def save_chart(chart: Chart, path: str | Path) -> None:
    """Write a chart as .png (twice the size, for sharp screens), .svg, .pdf or .html.

    Raises:
        LongsealError: the suffix is another, or the file cannot be written.
    """
    path = Path(path)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        raise LongsealError(f"{path} has no known format: end its name in {', '.join(_FORMATS)}")
    with new_file(path) as partial:
        chart.save(
            str(partial), format=kind, scale_factor=2 if kind == "png" else 1, inline=kind == "html"
        )
