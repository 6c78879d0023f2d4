"""Several texts of one form laid over each other: what is the same in all is literal."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from longseal.tasks.own.tokens import LAYOUT, WORDS, Token, Tokens, runs

#: A run of words is a template, and no free sentence, where so much of it is the same in all.
_TEMPLATED = 0.4


def align(texts: Sequence[Tokens]) -> tuple[list[str], list[list[Tokens]]]:
    """What all texts have in common, in order, and what each text has in the gaps between.

    Runs of words are taken as one at first, so that a chance `the` in two free sentences is no
    form; then a run that is much the same in all texts is aligned word by word.

    Returns:
        Literals, one more than gaps, and for each gap what stands there in every text.
    """
    literals, gaps = _align([runs(text) for text in texts])
    _part(literals, gaps)
    at = 0
    while at < len(gaps):
        inner = [gap[0].inner if len(gap) == 1 else () for gap in gaps[at]]
        if all(inner):
            parts, within = _align(inner)
            same = sum(t.kind not in LAYOUT for part in parts for t in part)
            mean = sum(t.kind not in LAYOUT for text in inner for t in text) / len(inner)
            if same >= _TEMPLATED * mean:
                left, right = [*literals[at], *parts[0]], [*parts[-1], *literals[at + 1]]
                literals[at : at + 2] = [left, *parts[1:-1], right]
                gaps[at : at + 1] = within
                at += len(within)
                continue
        at += 1
    flat = [[_flat(gap) for gap in each] for each in gaps]
    return ["".join(token.text for token in literal) for literal in literals], flat


def _part(literals: list[list[Token]], gaps: list[list[Tokens]]) -> None:
    """Part gaps that are built alike in all texts at the spaces beside data: each its own slot."""
    for at in reversed(range(len(gaps))):
        built = {tuple(map(_build, value)) for value in gaps[at]}
        if len(gaps[at]) < 2 or len(built) > 1:
            continue
        kinds = built.pop()
        cuts = [
            i
            for i in range(1, len(kinds) - 1)
            if kinds[i] == " " and not kinds[i - 1] == kinds[i + 1] == "word"
        ]
        bounds = [-1, *cuts, len(kinds)]
        literals[at + 1 : at + 1] = [[Token(" ", "space")] for _ in cuts]
        gaps[at : at + 1] = [[value[a + 1 : b] for value in gaps[at]] for a, b in pairwise(bounds)]


def _build(token: Token) -> str:
    """What values that are built alike have in common of a token."""
    if token.kind in LAYOUT:
        return token.text
    return "word" if token.kind in WORDS else token.kind


def _flat(gap: Tokens) -> Tokens:
    return [each for token in gap for each in (token.inner or (token,))]


def _align(texts: Sequence[Tokens]) -> tuple[list[list[Token]], list[list[Tokens]]]:
    """Literals, one more than gaps, and for each gap what stands there in every text."""
    literals = [list(texts[0])]
    for text in texts:  # the first one too: what the user varies is no literal
        if _parse(literals, text) is None:
            literals = _merge(literals, text)
    literals = [literals[0], *filter(_anchors, literals[1:-1]), *literals[1:][-1:]]
    if len(literals) == 1:
        return literals, []
    rows = [_parse(literals, text) for text in texts]
    assert all(row is not None for row in rows)
    return literals, [list(column) for column in zip(*(row or [] for row in rows), strict=True)]


def _anchors(literal: list[Token]) -> bool:
    """Whether a literal parts two slots: a space between two words is part of a phrase."""
    return any(token.kind != "space" for token in literal)


def _merge(literals: list[list[Token]], text: Tokens) -> list[list[Token]]:
    """The literals less what a text lacks of them; the first and the last stand at its ends."""
    flat = [(token, i) for i, literal in enumerate(literals) for token in literal]
    keys = [token.text for token, _ in flat]
    others = [f"\0{i}" if token.varied else token.text for i, token in enumerate(text)]
    blocks = SequenceMatcher(None, keys, others, autojunk=False).get_matching_blocks()[:-1]
    made: list[tuple[int, int, list[Token]]] = []  # place in flat, in text, and what is there
    for a, b, size in blocks:
        for i in range(size):
            if i and flat[a + i][1] == flat[a + i - 1][1]:
                made[-1][2].append(flat[a + i][0])
            else:
                made.append((a + i, b + i, [flat[a + i][0]]))
    first: list[Token] = []
    last: list[Token] = []
    if made and made[0][:2] == (0, 0) and flat[0][1] == 0:
        first = made.pop(0)[2]
    if made:
        a, b, kept = made[-1]
        ends = (a + len(kept), b + len(kept)) == (len(flat), len(text))
        if ends and flat[-1][1] == len(literals) - 1:
            last = made.pop()[2]
    return [first, *(kept for _, _, kept in made), last]


def _parse(literals: list[list[Token]], text: Tokens) -> list[Tokens] | None:
    """What a text has in the gaps, each literal at its first place; None without one."""
    keys = [f"\0{i}" if token.varied else token.text for i, token in enumerate(text)]
    wanted = [[token.text for token in literal] for literal in literals]
    if len(wanted) == 1:
        return [] if wanted[0] == keys else None
    end = len(keys) - len(wanted[-1])
    at = len(wanted[0])
    if end < at or keys[:at] != wanted[0] or keys[end:] != wanted[-1]:
        return None
    gaps: list[Tokens] = []
    for literal in wanted[1:-1]:
        place = next(
            (i for i in range(at, end - len(literal) + 1) if keys[i : i + len(literal)] == literal),
            None,
        )
        if place is None:
            return None
        gaps.append(text[at:place])
        at = place + len(literal)
    return [*gaps, text[at:end]]
