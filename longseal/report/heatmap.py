"""The heat map of needle tests: how much was found, by prompt length and depth."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean
from typing import Protocol

import altair as alt

from longseal.report.look import Chart, finish
from longseal.report.wording import percent, short_length

#: From nothing found to all, told apart by colour-blind readers (red and green are not).
_COLOURS = ["#b8540a", "#f2ad6d", "#f5efdc", "#7eaee6", "#1d5fae"]


class Found(Protocol):
    """How much of a question's answer was found: a case, or a row with what a map needs of it."""

    @property
    def variant(self) -> str:
        """Which model was asked: a panel of its own."""

    @property
    def length(self) -> int:
        """Tokens of the prompt that were asked for."""

    @property
    def depth(self) -> float | None:
        """Depth that was asked for: 0 start, 1 end. None: the row is left out."""

    @property
    def value(self) -> float:
        """Score, 0 to 1."""


def heatmap_chart(rows: Iterable[Found]) -> Chart:
    """Mean score by length (across) and depth (down), a panel for each variant, side by side."""
    cells: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        if row.depth is not None:
            cells.setdefault((row.variant, row.length, round(100 * row.depth)), []).append(
                row.value
            )
    variants = list(dict.fromkeys(variant for variant, _, _ in cells))
    lengths = sorted({length for _, length, _ in cells})
    depths = sorted({depth for _, _, depth in cells})
    # Panels are one chart with gaps in it: real facets cannot be as wide as their place in a page.
    columns: list[str] = []
    for variant in variants:
        columns += [_column(variant)] * bool(columns) + [_column(variant, n) for n in lengths]
    squares = [
        {
            "column": _column(variant, length),
            "depth": f"{depth}%",
            "value": mean(values),
            "says": f"{variant} at {length:,} tokens, depth {depth}%: {percent(mean(values))} found"
            + (f" ({len(values)} asked)" if len(values) > 1 else ""),
        }
        for (variant, length, depth), values in cells.items()
    ]
    titles = [{"column": _column(v, lengths[0]), "title": v} for v in variants]
    x = alt.X(
        "column:N",
        sort=columns,
        title="prompt length, tokens",
        scale=alt.Scale(domain=columns, paddingInner=0, paddingOuter=0),
        axis=alt.Axis(
            labelExpr="split(datum.label, '|')[1]",
            labelAngle=0,
            labelOverlap="greedy",
            labelSeparation=4,
            grid=False,
            ticks=False,
            domain=False,
        ),
    )
    y = alt.Y(
        "depth:N",
        sort=[f"{depth}%" for depth in depths],
        title="depth of the needle",
        scale=alt.Scale(paddingInner=0, paddingOuter=0),
        axis=alt.Axis(grid=False, ticks=False, domain=False),
    )
    colour = alt.Color(
        "value:Q",
        scale=alt.Scale(domain=[0, 0.25, 0.5, 0.75, 1], range=_COLOURS, interpolate="rgb"),
        legend=alt.Legend(
            title="found",
            format="%",
            values=[0, 0.5, 1],
            gradientLength=220,
            gradientThickness=12,
            offset=32,  # room for the panels' names
        ),
    )
    found = (
        alt.Chart(alt.InlineData(squares))
        .mark_rect(stroke="white", strokeWidth=1)
        .encode(x=x, y=y, color=colour, tooltip=alt.Tooltip("says:N"))
    )
    names = (
        alt.Chart(alt.InlineData(titles))
        .mark_text(align="left", baseline="bottom", dy=-4, fontSize=13, fontWeight="bold")
        .encode(x=alt.X("column:N", sort=columns, bandPosition=0), y=alt.value(0), text="title:N")
    )
    return finish(found + names, max(60, 26 * len(depths)))


def _column(variant: str, length: int | None = None) -> str:
    """Name of a column; without a length, of the gap before a variant's panel."""
    return f"{variant}|{'' if length is None else short_length(length)}"
