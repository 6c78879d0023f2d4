"""Charts of what probing found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from longseal.probing import Influence, Look, Quadrants, Trust
from longseal.probing.direct import Contribution
from longseal.report.charts import gradient_legend, head_map
from longseal.report.look import BLUE, GREY, ORANGE, Chart, finish

_DIVERGING = ["#b8540a", "#f2ad6d", "#efefec", "#7eaee6", "#1d5fae"]
_SHOWN = 16  # parts in a chart of direct effects


def influence_chart(found: Sequence[Influence]) -> Chart:
    """Every head's influence at one length, layer by head.

    Orange heads help: without them the right answers are less likely. Blue ones harm.
    """
    heads = [each for each in found if each.of_head]
    rows = [
        {"layer": each.layer, "head": each.head, "change": each.change, "says": says(each)}
        for each in heads
    ]
    return head_map(rows, _change_colour([each.change for each in heads]))


def quadrants_chart(found: Sequence[Influence], quadrants: Quadrants) -> Chart:
    """Every head by its change at the middle length (across) and at the long one (up)."""
    changes: dict[str, dict[int, Influence]] = {}
    for each in found:
        changes.setdefault(each.name, {})[each.length] = each
    of = {str(head): name for name, heads in quadrants.heads.items() for head in heads}
    rows = [
        {
            "middle": both[quadrants.middle].change,
            "long": both[quadrants.long].change,
            "quadrant": of[name],
            "says": f"{name}, {of[name]}: {both[quadrants.middle].change:+.3f} nats at "
            f"{quadrants.middle:,} tokens, {both[quadrants.long].change:+.3f} at "
            f"{quadrants.long:,}",
        }
        for name, both in changes.items()
        if name in of
    ]
    names = list(quadrants.heads)
    based = alt.Chart(alt.InlineData(rows))
    points = based.mark_point(filled=True, size=60, opacity=0.75).encode(
        x=alt.X("middle:Q", title=f"change at {quadrants.middle:,} tokens, nats"),
        y=alt.Y("long:Q", title=f"change at {quadrants.long:,} tokens, nats"),
        color=alt.Color(
            "quadrant:N",
            title=None,
            scale=alt.Scale(domain=names, range=[BLUE, GREY, ORANGE, "#0a8f69"]),
        ),
        tooltip=alt.Tooltip("says:N"),
    )
    return finish(_rule(x=0) + _rule(y=0) + points, 420)


def trust_chart(
    estimated: Sequence[Influence], exact: Sequence[Influence], trust: Sequence[Trust]
) -> Chart:
    """The estimate of every audited head (across) beside its exact change (up)."""
    guesses = {(each.length, each.name): each.change for each in estimated}
    ranks = {t.length: t.rank for t in trust if t.among == "audited"}
    rows = [
        {
            "estimate": guesses[each.length, each.name],
            "exact": each.change,
            "length": f"{each.length:,} tokens"
            + (f" (rank correlation {ranks[each.length]:.2f})" if each.length in ranks else ""),
            "says": f"{each.name} at {each.length:,} tokens: estimated "
            f"{guesses[each.length, each.name]:+.3f}, exactly {each.change:+.3f} nats",
        }
        for each in exact
        if (each.length, each.name) in guesses
    ]
    legend = alt.Legend(title=None, labelLimit=0, columns=1)  # a phone is narrow
    names = list(dict.fromkeys(str(row["length"]) for row in rows))  # in the order they were asked
    colours = [BLUE, ORANGE, GREY][: len(names)]
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_point(filled=True, size=60, opacity=0.75)
        .encode(
            x=alt.X("estimate:Q", title="estimated change, nats"),
            y=alt.Y("exact:Q", title="exact change, nats"),
            color=alt.Color(
                "length:N", scale=alt.Scale(domain=names, range=colours), legend=legend
            ),
            shape=alt.Shape("length:N", scale=alt.Scale(domain=names), legend=legend),
            tooltip=alt.Tooltip("says:N"),
        )
    )
    return finish(chart, 360)


def bars_chart(found: Sequence[Influence]) -> Chart:
    """The change at one length of each channel of a head, or of each group that was pruned."""
    rows = [{"name": each.name, "change": each.change, "says": says(each)} for each in found]
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_bar()
        .encode(
            x=alt.X("name:N", sort=None, title=None, axis=alt.Axis(labelOverlap=True, ticks=False)),
            y=alt.Y("change:Q", title="change, nats"),
            color=alt.condition("datum.change < 0", alt.value(ORANGE), alt.value(BLUE)),
            tooltip=alt.Tooltip("says:N"),
        )
    )
    return finish(chart, 240)


def looks_chart(seen: Sequence[Look], found: Sequence[Influence]) -> Chart:
    """How far back every head looks (across) and how often it copies (up), by its influence."""
    changes = {each.name: each.change for each in found}
    copies = any(look.copies is not None for look in seen)
    shown = [look for look in seen if str(look.head) in changes]
    rows = [
        {
            "distance": look.distance,
            "up": look.copies if copies else look.first,
            "change": changes[str(look.head)],
            "says": _looks(look, changes[str(look.head)]),
        }
        for look in shown
    ]
    title = "retrieval score" if copies else "share at the first tokens"
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_point(filled=True, size=70, opacity=0.9, stroke=GREY, strokeWidth=0.5)
        .encode(
            x=alt.X("distance:Q", title="how far back it looks, tokens"),
            y=alt.Y("up:Q", title=title),
            color=_change_colour([changes[str(look.head)] for look in shown]),
            tooltip=alt.Tooltip("says:N"),
        )
    )
    return finish(chart, 360)


def learned_chart(scales: Mapping[str, float], found: Sequence[Influence]) -> Chart:
    """Every head by its influence (across) and its learned scale (up)."""
    rows = [
        {
            "change": each.change,
            "scale": scales[each.name],
            "says": f"{says(each)}; learned scale {scales[each.name]:.3f}",
        }
        for each in found
        if each.name in scales
    ]
    points = (
        alt.Chart(alt.InlineData(rows))
        .mark_point(filled=True, size=60, opacity=0.75, color=BLUE)
        .encode(
            x=alt.X("change:Q", title="change when pruned, nats"),
            y=alt.Y("scale:Q", title="learned scale", scale=alt.Scale(zero=False)),
            tooltip=alt.Tooltip("says:N"),
        )
    )
    return finish(_rule(x=0) + _rule(y=1) + points, 360)


def direct_chart(sides: Mapping[str, Sequence[Contribution]]) -> Chart:
    """The parts of a model that add most to the difference of two logits, or take most away.

    Args:
        sides: what they add in each model; the last one says which parts are shown.
    """
    ranked = sorted([*sides.values()][-1], key=lambda part: -abs(part.value))[:_SHOWN]
    order = [part.name for part in sorted(ranked, key=lambda part: -part.value)]
    rows = [
        {
            "name": part.name,
            "side": side,
            "value": part.value,
            "says": f"{part.name}, {side}: {part.value:+.3f}",
        }
        for side, parts in sides.items()
        for part in parts
        if part.name in order
    ]
    looks = dict(zip(sides, (GREY, BLUE, ORANGE), strict=False))
    chart = (
        alt.Chart(alt.InlineData(rows))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", sort=order, title=None, axis=alt.Axis(ticks=False)),
            yOffset=alt.YOffset("side:N", sort=list(sides)),
            x=alt.X("value:Q", title="added to the difference of the logits"),
            color=alt.Color(
                "side:N",
                title=None,
                sort=list(sides),
                scale=alt.Scale(domain=list(looks), range=list(looks.values())),
            ),
            tooltip=alt.Tooltip("says:N"),
        )
    )
    return finish(chart, (8 + 10 * len(sides)) * len(order))


def _looks(look: Look, change: float) -> str:
    copies = "" if look.copies is None else f", retrieval score {look.copies:.2f}"
    return (
        f"{look.head}: looks {look.distance:,.0f} tokens back, {look.first:.0%} at the first "
        f"tokens{copies}; {change:+.3f} nats when pruned"
    )


def _change_colour(changes: Sequence[float]) -> alt.Color:
    """Orange where a head helps, blue where it harms; the middle half of the range is pale."""
    reach = max([1e-6, *map(abs, changes)])
    scale = alt.Scale(
        domain=[-reach, -reach / 4, 0, reach / 4, reach], range=_DIVERGING, interpolate="rgb"
    )
    legend = gradient_legend("change, nats", "+.2~f")
    return alt.Color("change:Q", scale=scale, legend=legend)


def _rule(**place: float) -> alt.Chart:
    """A dashed line across the chart at a value of `x` or `y`."""
    made: alt.Chart = (
        alt.Chart(alt.InlineData([{"zero": 0}]))
        .mark_rule(color=GREY, strokeDash=[3, 3])
        .encode(**{axis: alt.datum(value) for axis, value in place.items()})
    )
    return made


def says(each: Influence) -> str:
    """An influence in words, as hovering shows it."""
    interval = ""
    if each.low is not None and each.high is not None:
        interval = f" ({each.low:+.3f} to {each.high:+.3f})"
    accuracy = "" if each.accuracy is None else f", accuracy {each.accuracy:+.2f}"
    return f"{each.name}: {each.change:+.3f} nats{interval}{accuracy}, {each.method}"
