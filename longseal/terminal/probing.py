"""What probing found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from longseal.probing import Answered, Case, Probe, Quadrants

_ENDS = 8  # of a ranking, how many of either end are shown
_WIDTH = 66  # so that titles break in two at most


def probe_tables(found: Probe) -> list[Table]:
    """For each length: the heads that help most and harm most, and how far estimates hold."""
    tables = []
    for base in found.base:
        here = [each for each in found.best_known if each.length == base.length]
        ranked = sorted(here, key=lambda each: each.change)
        shown = ranked if len(ranked) <= 2 * _ENDS else [*ranked[:_ENDS], *ranked[-_ENDS:]]
        accuracy = "" if base.accuracy is None else f", {base.accuracy:.2f} answered right"
        table = Table(
            "pruned",
            "change, nats",
            "95% interval",
            "accuracy",
            "found by",
            title=f"{base.length:,} tokens: what becomes of the right answers "
            f"({base.log_probability:.2f} nats each as it is{accuracy})",
            title_justify="left",
            min_width=_WIDTH,
        )
        for place, each in enumerate(shown):
            known = each.low is not None and each.high is not None
            table.add_row(
                each.name,
                f"{each.change:+.3f}",
                f"{each.low:+.3f} to {each.high:+.3f}" if known else "",
                "" if each.accuracy is None else f"{each.accuracy:+.2f}",
                each.method,
                end_section=len(ranked) > len(shown) and place == _ENDS - 1,
            )
        tables.append(table)
    if found.trust:
        table = Table(
            "length",
            "heads",
            "rank correlation",
            "same sign",
            title="estimate against exact pruning (95% interval)",
            title_justify="left",
            min_width=_WIDTH,
        )
        for trust in found.trust:
            (low, high), (least, most) = trust.rank_interval, trust.same_sign_interval
            table.add_row(
                f"{trust.length:,}",
                f"{trust.heads} {'audited' if trust.among == 'audited' else 'of them drawn'}",
                f"{trust.rank:.2f} ({low:.2f} to {high:.2f})",
                f"{trust.same_sign:.2f} ({least:.2f} to {most:.2f})",
            )
        tables.append(table)
    return tables


def quadrant_tables(found: Quadrants) -> list[Table]:
    """How many heads are in each quadrant, and what rescaling them does on held-out questions."""
    counts = Table(
        *found.heads,
        title=f"heads by quadrant, at {found.middle:,} and {found.long:,} tokens "
        "(Q1: better without them; Q3: worse)",
        title_justify="left",
        min_width=_WIDTH,
    )
    counts.add_row(*(str(len(heads)) for heads in found.heads.values()))
    lengths = list(dict.fromkeys(each.answered.length for each in found.rescaled))
    table = Table(
        "rescaled",
        *(f"{length:,}" for length in lengths),
        title="held-out questions: mean score with its 95% interval (log-probability of the right "
        "answer, nats)",
        title_justify="left",
        min_width=_WIDTH,
    )
    for name in dict.fromkeys(each.name for each in found.rescaled):
        rows = [each.answered for each in found.rescaled if each.name == name]
        table.add_row(name, *map(_answers, rows))
    return [counts, table]


def why_tables(found: Probe) -> list[Table]:
    """What goes together with heads' influence, and what decides a case that tuning solved."""
    tables = []
    if found.relations:
        table = Table(
            "length",
            "figures of a head",
            "heads",
            "rank correlation",
            title="what goes together (95% interval; influence below 0: the head helps)",
            title_justify="left",
            min_width=_WIDTH,
        )
        for each in found.relations:
            low, high = each.interval
            table.add_row(
                f"{each.length:,}",
                each.what,
                str(each.heads),
                f"{each.rank:+.2f} ({low:+.2f} to {high:+.2f})",
            )
        tables.append(table)
    if found.tuned is not None:
        table = Table("length", "as it is", "with the adapter", min_width=_WIDTH)
        for before, now in zip(found.base, found.tuned.answered, strict=True):
            table.add_row(f"{now.length:,}", _answers(before), _answers(now))
        tables.append(table)
        if found.tuned.case is not None:
            tables.append(_case_table(found.tuned.case))
    return tables


def _case_table(case: Case) -> Table:
    table = Table(
        "part",
        "as it is",
        "with the adapter",
        "difference",
        title=f"{case.length:,} tokens: after {case.before!r} the model goes on with {case.other!r}"
        f", with the adapter with {case.token!r}. What each part adds to the difference of "
        "these two logits, what changed most first",
        title_justify="left",
        min_width=_WIDTH,
    )
    sides = [{p.name: p.value for p in side.contributions} for side in (case.base, case.tuned)]
    for part in case.difference[:_ENDS]:
        base, tuned = (side.get(part.name, 0.0) for side in sides)
        table.add_row(part.name, f"{base:+.2f}", f"{tuned:+.2f}", f"{part.value:+.2f}")
    rest = case.difference[_ENDS:]
    others = [sum(side.get(p.name, 0.0) for p in rest) for side in sides]
    table.add_row(
        f"{len(rest)} others",
        *(f"{value:+.2f}" for value in (*others, others[1] - others[0])),
        end_section=True,
    )
    whole = case.base.difference, case.tuned.difference
    table.add_row("all", *(f"{value:+.2f}" for value in (*whole, whole[1] - whole[0])))
    return table


def _answers(found: Answered) -> str:
    nats = f"({found.log_probability:.2f})"
    if found.accuracy is None or found.interval is None:
        return nats
    low, high = found.interval
    return f"{found.accuracy:.2f}, {low:.2f} to {high:.2f} {nats}"
