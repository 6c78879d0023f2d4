"""RULER's noise, and hiding lines among lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SENTENCES = (
    "The grass is green.",
    "The sky is blue.",
    "The sun is yellow.",
    "Here we go.",
    "There and back again.",
)
#: Sentences of a line.
LINE = len(_SENTENCES)


def noise(sentences: int) -> list[str]:
    """Lines of five sentences; the last one has what is left over."""
    whole, rest = divmod(sentences, LINE)
    lines = [" ".join(_SENTENCES)] * whole
    return [*lines, " ".join(_SENTENCES[:rest])] if rest else lines


def hide_in_lines(lines: Sequence[str], hidden: Iterable[tuple[int, str]]) -> str:
    """Put lines among others, each before the one of the given number (after all: their count)."""
    made = list(lines)
    for place, line in sorted(hidden, reverse=True):
        made.insert(place, line)
    return "\n".join(made)
