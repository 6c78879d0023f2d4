"""The transfer matrix as a heat map: numbers in its cells, differences from the base as colour."""

from __future__ import annotations

from typing import Any

import altair as alt

from longseal.evaluation.matrix import Cell, Matrix
from longseal.report.look import Chart, finish
from longseal.report.wording import count, interval, share

#: From worse than the base to better; light enough for dark numbers.
_COLOURS = ["#e58a3c", "#f5c498", "#f1f1ee", "#a9c9ee", "#5f9fe3"]
_LEAST_REACH = 0.2  # of the colours: differences of a hundredth are not to look like much


def matrix_chart(matrix: Matrix) -> Chart:
    """Mean scores, a row a model (the base first) and a column a task.

    A frame and a star mark what an adapter was tuned on.
    """
    rows: list[dict[str, Any]] = [
        {
            "variant": variant,
            "task": column,
            "difference": cell.difference or 0.0,
            "value": share(cell.accuracy) + "*" * cell.learned,
            "learned": cell.learned,
            "says": _says(variant, column, cell),
        }
        for variant, cells in zip(matrix.variants, matrix.rows, strict=True)
        for column, cell in zip(matrix.columns, cells, strict=True)
        if cell is not None
    ]
    reach = max(_LEAST_REACH, *(abs(row["difference"]) for row in rows))
    axis: dict[str, Any] = {"grid": False, "ticks": False, "domain": False, "labelLimit": 240}
    based = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X(
            "task:N",
            sort=list(matrix.columns),
            title=None,
            scale=alt.Scale(paddingInner=0.03, paddingOuter=0),
            axis=alt.Axis(**axis, orient="top", labelAngle=0 if len(matrix.columns) < 7 else -30),
        ),
        y=alt.Y(
            "variant:N",
            sort=list(matrix.variants),
            title=None,
            scale=alt.Scale(paddingInner=0.06, paddingOuter=0),
            axis=alt.Axis(**axis),
        ),
        tooltip=alt.Tooltip("says:N"),
    )
    colour = alt.Color(
        "difference:Q",
        scale=alt.Scale(
            domain=[-reach, -reach / 2, 0, reach / 2, reach], range=_COLOURS, interpolate="rgb"
        ),
        legend=alt.Legend(
            title="difference from the base",
            format="+.2f",
            values=[-reach, 0, reach],
            orient="bottom",
            gradientLength=220,
            gradientThickness=12,
        ),
    )
    squares = based.mark_rect().encode(color=colour)
    frames = based.mark_rect(filled=False, stroke="#1c1e21", strokeWidth=2).transform_filter(
        "datum.learned"
    )
    # Named, so that the page leaves them dark on their cells whatever its own colours are.
    numbers = based.mark_text(fontSize=14, color="#1c1e21").encode(text="value:N")
    numbers = numbers.properties(name="numbers")
    return finish(squares + frames + numbers, 38 * len(matrix.variants))


def _says(variant: str, column: str, cell: Cell) -> str:
    accuracy = cell.accuracy
    said = [
        f"{variant} on {column}: {share(accuracy)}, {count(accuracy)} "
        f"(95% interval {interval(accuracy)})"
    ]
    if cell.difference is not None:
        said.append(f"{cell.difference:+.2f} from the base")
    if cell.p is not None:
        said.append(f"p {'< 0.001' if cell.p < 0.001 else f'= {cell.p:.2g}'}")
    if cell.learned:
        said.append("tuned on this task")
    return "; ".join(said)
