"""The heat map of needle tests: how much was found, by prompt length and depth."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from longseal.evaluation.results import AtDepth
from longseal.report.look import Chart, finish
from longseal.report.wording import percent, short_length

#: From nothing found to all, told apart by colour-blind readers (red and green are not).
_COLOURS = ["#b8540a", "#f2ad6d", "#f5efdc", "#7eaee6", "#1d5fae"]


def heatmap_chart(rows: Sequence[AtDepth]) -> Chart:
    """Mean score by length (across) and depth (down), a panel for each variant, side by side.

    Args:
        rows: of one task, a cell each.
    """
    variants = list(dict.fromkeys(row.variant for row in rows))
    lengths = sorted({row.length for row in rows})
    depths = sorted({row.depth for row in rows})
    # Panels are one chart with gaps in it: real facets cannot be as wide as their place in a page.
    columns: list[str] = []
    for variant in variants:
        columns += [_column(variant)] * bool(columns) + [_column(variant, n) for n in lengths]
    squares = [
        {
            "column": _column(row.variant, row.length),
            "depth": _depth(row.depth),
            "value": row.value,
            "says": f"{row.variant} at {row.length:,} tokens, depth {_depth(row.depth)}: "
            f"{percent(row.value)} found" + (f" ({row.total} asked)" if row.total > 1 else ""),
        }
        for row in rows
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
        sort=list(map(_depth, depths)),
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


def _depth(share: float) -> str:
    return f"{100 * share:g}%"


def _column(variant: str, length: int | None = None) -> str:
    """Name of a column; without a length, of the gap before a variant's panel."""
    return f"{variant}|{'' if length is None else short_length(length)}"
