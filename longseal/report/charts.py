"""The charts: one definition each, from which HTML, PNG and SVG are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from longseal.evaluation.results import Accuracy
from longseal.report.contents import Judged
from longseal.report.look import BLUE, GREY, ORANGE, Chart, finish, looks
from longseal.report.wording import count, interval, percent, share, short_length
from longseal.scales import Scales

_DODGE = 12  # pixels between the variants' points at one length


def accuracy_chart(accuracies: Sequence[Accuracy], height: int = 300) -> Chart:
    """One task's accuracy over length: a line and points for each variant, with 95% intervals.

    Where samples are counted in groups (such as ranges of lengths), the groups stand along x. The
    folded model usually answers as the tuned one does: its points stand beside, on a dashed line.

    Args:
        accuracies: of one task, or the means of one family.
        height: in pixels.
    """
    rising = sorted(accuracies, key=lambda a: a.length)
    places = {(a.group, a.length): a.group or short_length(a.length) for a in rising}
    if len(set(places.values())) < len(places):  # a group at several lengths
        places = {(group, n): f"{group}, {short_length(n)}".lstrip(", ") for group, n in places}
    in_parts = any(a.correct is None for a in accuracies)
    variants = list(dict.fromkeys(a.variant for a in accuracies))
    by_variant = looks(variants)
    drawn = [by_variant[variant] for variant in variants]
    colours, shapes = [look.colour for look in drawn], [look.shape for look in drawn]
    dashes = [list(look.dash) for look in drawn]
    reach = _DODGE * (len(variants) - 1) / 2
    rows = [
        {
            "variant": a.variant,
            "length": places[a.group, a.length],
            "accuracy": a.value,
            "low": a.low,
            "high": a.high,
            "says": f"{a.variant} at {a.length:,} tokens: {share(a)}, {count(a)} "
            f"(95% interval {interval(a)})",
        }
        for a in accuracies
    ]
    plain = alt.Legend(symbolOpacity=1, symbolStrokeWidth=0)  # not the bars' look, nor dashed
    variant: dict[str, Any] = {"title": None, "legend": plain}
    based = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X(
            "length:N",
            sort=list(places.values()),
            title="group" if any(a.group for a in accuracies) else "prompt length, tokens",
            axis=alt.Axis(labelAngle=0, grid=False, ticks=False),
            scale=alt.Scale(type="point", padding=0.3),
        ),
        xOffset=alt.XOffset(
            "variant:N",
            sort=None,
            scale=alt.Scale(type="point", domain=variants, range=[-reach, reach], padding=0),
        ),
        color=alt.Color("variant:N", scale=alt.Scale(domain=variants, range=colours), **variant),
        tooltip=alt.Tooltip("says:N"),
    )
    from_0_to_1 = alt.Scale(domain=[0, 1])
    accuracy = alt.Y(
        "accuracy:Q",
        scale=from_0_to_1,
        title="mean score" if in_parts else "answered right",
        axis=alt.Axis(format=".1f" if in_parts else "%", tickCount=5),
    )
    lines = based.mark_line(strokeWidth=2).encode(
        y=accuracy,
        strokeDash=alt.StrokeDash(
            "variant:N", scale=alt.Scale(domain=variants, range=dashes), **variant
        ),
    )
    bars = based.mark_rule(strokeWidth=2, opacity=0.45).encode(
        y=alt.Y("low:Q", scale=from_0_to_1), y2="high:Q"
    )
    points = based.mark_point(filled=True, size=90, opacity=1).encode(
        y=accuracy,
        shape=alt.Shape("variant:N", scale=alt.Scale(domain=variants, range=shapes), **variant),
    )
    return finish(bars + lines + points, height)


def scales_chart(scales: Scales) -> Chart:
    """Every head's scale (the mean of its channels' for kind `channel`), layer by head.

    Orange heads speak louder than in the base, blue ones more softly, grey is 1.
    """
    rows = _heads(scales)
    reach = max(0.01, *(abs(row["mean"] - 1) for row in rows))
    colour = alt.Scale(
        domain=[1 - reach, 1 - reach / 2, 1, 1 + reach / 2, 1 + reach],
        range=["#1d5fae", "#7eaee6", "#efefec", "#f2ad6d", "#b8540a"],
        interpolate="rgb",
    )
    title = "scale" if scales.kind == "head" else "mean scale"
    return head_map(rows, alt.Color("mean:Q", scale=colour, legend=gradient_legend(title, ".3~f")))


def spread_chart(scales: Scales) -> Chart:
    """How far the channels' scales of each head lie apart (standard deviation), layer by head."""
    rows = _heads(scales)
    colour = alt.Scale(
        domain=[0, max(0.001, *(row["spread"] for row in rows))],
        range=["#efefec", "#5c2d91"],
        interpolate="rgb",
    )
    legend = gradient_legend("standard deviation", ".2~r")
    return head_map(rows, alt.Color("spread:Q", scale=colour, legend=legend))


def training_chart(steps: Sequence[Mapping[str, Any]], judged: Sequence[Judged] = ()) -> Chart:
    """Training loss of every step, and what held-out samples said about the candidates.

    Args:
        steps: records with `step`, `loss` (nats a token) and `tokens` (of the context).
        judged: candidates; their losses are diamonds, their accuracies stand above the plot.
    """
    rows = [
        {
            "step": s["step"],
            "loss": s["loss"],
            "kind": "training",
            "says": f"step {s['step']}: training loss {s['loss']:.3g}"
            + (f", {s['tokens']:,} tokens" if "tokens" in s else ""),
        }
        for s in steps
    ]
    rows += [
        {"step": j.step, "loss": j.loss, "kind": "held out", "says": _says(j)}
        for j in judged
        if j.loss is not None
    ]
    kinds = ["training", "held out"][: len({row["kind"] for row in rows})]
    look: dict[str, Any] = {
        "title": None,
        "legend": alt.Legend(orient="bottom") if len(kinds) > 1 else None,
    }
    last = max([s["step"] for s in steps] + [j.step for j in judged])
    x = alt.X(
        "step:Q",
        title="step",
        scale=alt.Scale(domain=[0, last], nice=False),
        axis=alt.Axis(format="d", tickMinStep=1, grid=False),
    )
    y = alt.Y("loss:Q", title="loss, nats a token", scale=alt.Scale(zero=True))
    losses = alt.Chart(alt.InlineData(rows)).encode(
        x=x,
        y=y,
        color=alt.Color(
            "kind:N", scale=alt.Scale(domain=kinds, range=[BLUE, ORANGE][: len(kinds)]), **look
        ),
        tooltip=alt.Tooltip("says:N"),
    )
    line = losses.transform_filter("datum.kind == 'training'").mark_line(strokeWidth=2)
    points = losses.mark_point(filled=True, size=70, opacity=1).encode(
        shape=alt.Shape(
            "kind:N",
            scale=alt.Scale(domain=kinds, range=["circle", "diamond"][: len(kinds)]),
            **look,
        )
    )
    held_out = _held_out(judged, last)
    lines = max((row["label"].count("\n") for row in held_out), default=0)
    marks = alt.Chart(alt.InlineData(held_out)).encode(x=x, tooltip=alt.Tooltip("says:N"))
    rules = marks.mark_rule(strokeDash=[2, 3], color=GREY, strokeWidth=1.5)
    words = marks.mark_text(
        align=alt.ExprRef("datum.align"),
        baseline="bottom",
        dy=-5 - 15 * lines,
        fontSize=12,
        lineBreak="\n",
        lineHeight=15,
    ).encode(y=alt.value(0), text="label:N")
    return finish(rules + line + points + words, 240)


def _held_out(judged: Sequence[Judged], last: int) -> list[dict[str, Any]]:
    """One a step whose accuracy was judged: what to write above it."""
    steps: dict[int, list[Judged]] = {}
    for candidate in judged:
        if candidate.accuracy is not None:
            steps.setdefault(candidate.step, []).append(candidate)
    rows = []
    for step, found in steps.items():
        labels = [
            ("" if j.strength in (0, 1) else f"× {j.strength:g}: ")
            + f"{percent(j.accuracy or 0.0)} right"
            for j in found
        ]
        align = "left" if step == 0 else "right" if step == last else "center"
        says = "; ".join(map(_says, found))
        rows.append({"step": step, "label": "\n".join(labels), "align": align, "says": says})
    return rows


def _says(judged: Judged) -> str:
    name = f"step {judged.step} at strength {judged.strength:g}" if judged.step else "base"
    figures = []
    if judged.accuracy is not None:
        figures.append(f"held-out accuracy {percent(judged.accuracy)}")
    if judged.loss is not None:
        figures.append(f"held-out loss {judged.loss:.3g}")
    return f"{name}: {', '.join(figures)}"


def _heads(scales: Scales) -> list[dict[str, Any]]:
    """A row a head: its name as the field writes it (L12H3), mean and spread of its scales."""
    rows = []
    for head, values in scales.by_head.items():
        mean, spread = float(values.mean()), float(values.std(correction=0))
        says = f"{head}, scale {mean:.3f}"
        if scales.kind == "channel":
            low, high = float(values.min()), float(values.max())
            says = (
                f"{head}, mean scale {mean:.3f}, its {len(values)} channels {low:.3f} to "
                f"{high:.3f} (standard deviation {spread:.3f})"
            )
        place = {"layer": head.layer, "head": head.head}
        rows.append({**place, "mean": mean, "spread": spread, "says": says})
    return rows


def head_map(rows: Sequence[Mapping[str, Any]], colour: alt.Color) -> Chart:
    """Layer by head. Layers run along x: there are more of them than heads in most models."""
    axis: dict[str, Any] = {
        "labelAngle": 0,
        "labelOverlap": True,
        "labelSeparation": 4,
        "grid": False,
        "ticks": False,
    }
    squares = alt.Chart(alt.InlineData(list(rows))).encode(
        x=alt.X("layer:O", title="layer", axis=alt.Axis(**axis)),
        y=alt.Y("head:O", title="head", axis=alt.Axis(**axis, domain=False)),
        color=colour,
        tooltip=alt.Tooltip("says:N"),
    )
    n_heads = len({row["head"] for row in rows})
    return finish(squares.mark_rect(), max(60, min(20 * n_heads, 480)))


def gradient_legend(title: str, number: str) -> alt.Legend:
    """A wide legend of a continuous colour, its labels in this number format."""
    return alt.Legend(
        title=title, format=number, gradientLength=220, gradientThickness=12, tickCount=4
    )
