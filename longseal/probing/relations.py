"""How heads' influence goes together with where they look, and with what tuning made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longseal.intervals import rank_correlation
from longseal.probing.result import Figure, Influence, Looks, Relation

_PAIRS: tuple[tuple[Figure, Figure], ...] = (
    ("influence", "distance"),
    ("influence", "first"),
    ("influence", "copies"),
    ("influence", "scale"),
    ("scale", "distance"),
    ("scale", "first"),
    ("scale", "copies"),
)


def relations(
    found: Sequence[Influence], seen: Sequence[Looks], scales: Mapping[str, float]
) -> tuple[Relation, ...]:
    """Every correlation that can be made, at each length.

    Args:
        found: the best known influence of every head at each length.
        scales: learned scales by head; empty where there are none.
    """
    made = []
    for length in dict.fromkeys(each.length for each in found):
        looks = {str(look.head): look for at in seen if at.length == length for look in at.heads}
        figures: dict[Figure, Mapping[str, float | None]] = {
            "influence": {each.name: each.change for each in found if each.length == length},
            "distance": {name: look.distance for name, look in looks.items()},
            "first": {name: look.first for name, look in looks.items()},
            "copies": {name: look.copies for name, look in looks.items()},
            "scale": scales,
        }
        for one, other in _PAIRS:
            pairs = [(mine, figures[other].get(name)) for name, mine in figures[one].items()]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            ranks = rank_correlation([a for a, _ in known], [b for _, b in known])
            if ranks is not None:
                made.append(Relation(length, one, other, len(known), *ranks))
    return tuple(made)
