"""In which order contexts are run, so that what they begin alike with is run once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# A shorter common start, or one of a smaller share of the context, is not worth a copy.
_LEAST_TOKENS = 64
_LEAST_SHARE = 1 / 8


def shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with.

    >>> shared_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def sharing_order(contexts: Mapping[int, Sequence[int]]) -> list[tuple[int, int]]:
    """Each context's key, and how many tokens it may take over from the one before it.

    Sorted, a context shares no more with any earlier one than with its neighbour, so one kept row
    is enough, and every node of the contexts' prefix tree is run once. Contexts that share nothing
    stay in their order.

    >>> sharing_order({0: [7] * 100, 1: [5] * 90 + [9], 2: [7] * 80})
    [(2, 0), (0, 80), (1, 0)]
    """
    chains: list[list[tuple[int, int]]] = []
    before: Sequence[int] = ()
    for key, context in sorted(contexts.items(), key=lambda item: (tuple(item[1]), item[0])):
        shared = shared_prefix(before, context)
        if shared >= max(_LEAST_TOKENS, _LEAST_SHARE * len(context)):
            chains[-1].append((key, shared))
        else:
            chains.append([(key, 0)])
        before = context
    chains.sort(key=min)
    return [link for chain in chains for link in chain]
