"""What probing found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from longseal.probing import Probe, Quadrants

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
    lengths = list(dict.fromkeys(each.length for each in found.rescaled))
    table = Table(
        "rescaled",
        *(f"{length:,}" for length in lengths),
        title="held-out questions: mean score (log-probability of the right answer, nats)",
        title_justify="left",
        min_width=_WIDTH,
    )
    for name in dict.fromkeys(each.name for each in found.rescaled):
        cells = [
            f"{each.accuracy:.2f} ({each.log_probability:.2f})"
            for length in lengths
            for each in found.rescaled
            if (each.name, each.length) == (name, length)
        ]
        table.add_row(name, *cells)
    return [counts, table]
