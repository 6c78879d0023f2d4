"""The page's charts of what probing found."""

from __future__ import annotations

from collections.abc import Iterator

from longseal.probing import Case, Probe
from longseal.report import probing
from longseal.report.figure import Figure

_HELP = "Orange heads help: without them the right answers are less likely. Blue ones harm."


def probe_figures(found: Probe) -> Iterator[Figure]:
    """Maps of heads, or bars of what else was pruned; then what else was asked for."""
    known = found.best_known
    single = any(each.of_head for each in known)
    for base in found.base:
        here = [each for each in known if each.length == base.length]
        title = f"What becomes of the right answers, at {base.length:,} tokens"
        if single:
            yield Figure.of("probe", title, _HELP, probing.influence_chart(here))
        else:
            caption = "Below 0 it helps, above 0 it harms."
            yield Figure.of("probe", title, caption, probing.bars_chart(here))
    if found.quadrants is not None:
        yield Figure.of(
            "probe",
            "Heads at two lengths",
            "Q1: the right answers are more likely without the head at both lengths; Q3: less "
            "likely at both.",
            probing.quadrants_chart(known, found.quadrants),
        )
    if found.trust:
        yield Figure.of(
            "probe",
            "Estimate and exact pruning",
            "Each point is a head that was audited.",
            probing.trust_chart(found.of("gradient"), found.of("exact"), found.trust),
        )
    for looks in found.looks:
        here = [each for each in known if each.length == looks.length]
        yield Figure.of(
            "why",
            f"Where heads look, at {looks.length:,} tokens",
            _HELP + " The retrieval score is the share of the answer\u2019s tokens at which a head "
            "attends most to that token in the evidence.",
            probing.looks_chart(looks.heads, here),
        )
    if found.tuned is not None:
        longest = max(base.length for base in found.base)
        if single:
            yield Figure.of(
                "why",
                "Learned scales and influence",
                f"Of a head whose channels have scales of their own, their mean. Influence at "
                f"{longest:,} tokens.",
                probing.learned_chart(
                    found.tuned.scales, [each for each in known if each.length == longest]
                ),
            )
        if found.tuned.case is not None:
            yield _case_figure(found.tuned.case)


def _case_figure(case: Case) -> Figure:
    return Figure.of(
        "why",
        "What decides a question that only the tuned model answers right",
        f"What single heads and MLPs add to the logit of {case.token!r} (right) over that of "
        f"{case.other!r} (the base\u2019s own), after {case.before!r}. Shown: what tuning changed "
        "most.",
        probing.direct_chart(
            {
                "as it is": case.base.contributions,
                "with the adapter": case.tuned.contributions,
                "difference": case.difference,
            }
        ),
    )
