"""Where a context can be cut into records: several ways, of which the shortest description wins."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from longseal.tasks.haystack import sentence_ends
from longseal.tasks.own.tokens import tokens

Span = tuple[int, int]
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"\s*:\s*')


def json_members(text: str) -> list[Span]:
    """The members of the JSON array or object that has most of them."""
    best: list[Span] = []
    at = 0
    while True:
        opened = re.compile(r"[\[{]").search(text, at)
        if opened is None:
            return best if len(best) > 1 else []
        found = _members(text, opened.start())
        if len(found) > len(best):
            best = found
        # Members of members are records only where the outer ones are few.
        at = found[-1][1] if len(found) > 2 else opened.end()


def _members(text: str, start: int) -> list[Span]:
    decoder = json.JSONDecoder()
    closing = {"[": "]", "{": "}"}[text[start]]
    found: list[Span] = []
    kinds: set[type] = set()
    at = _after_space(text, start + 1)
    while at < len(text) and text[at] != closing:
        key = _STRING.match(text, at) if closing == "}" else None
        if closing == "}" and key is None:
            return []
        try:
            value, end = decoder.raw_decode(text, key.end() if key else at)
        except (ValueError, RecursionError):
            return []
        found.append((at, end))
        kinds.add(type(value))
        at = _after_space(text, end)
        if at < len(text) and text[at] == ",":
            at = _after_space(text, at + 1)
    # An object of all kinds of values is one record; a map has values of one kind.
    whole = at < len(text) and (closing == "]" or len(kinds) == 1)
    return found if whole else []


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def elements(text: str) -> list[Span]:
    """XML-like elements of the tag that comes most, the outermost of them."""
    best: list[Span] = []
    for tag in dict.fromkeys(re.findall(r"<([A-Za-z][\w.-]*)[\s>]", text)):
        pattern = rf"<{re.escape(tag)}(?:\s[^<>]*)?>.*?</{re.escape(tag)}>"
        found = [match.span() for match in re.finditer(pattern, text, re.DOTALL)]
        if len(found) > 1 and sum(b - a for a, b in found) > sum(b - a for a, b in best):
            best = found
    return best


def blocks(text: str) -> list[Span]:
    """What blank lines part."""
    return [match.span() for match in re.finditer(r"\S(?:.|\n(?!\s*\n))*", text) if match[0]]


def lines(text: str) -> list[Span]:
    """Lines that are not blank, without their end."""
    return [match.span() for match in re.finditer(r"[^\r\n]*\S[^\r\n]*", text)]


def sentences(text: str) -> list[Span]:
    """Sentences; line breaks end them too."""
    spans = []
    for start, end in lines(text):
        cuts = [0, *sentence_ends(text[start:end]), end - start]
        for a, b in pairwise(cuts):
            left = _after_space(text, start + a)
            if left < start + b:
                spans.append((left, start + b))
    return spans


def starters(text: str) -> Iterator[list[Span]]:
    """Groups of lines, each beginning with a line of the kind that begins the first one."""
    found = lines(text)
    kinds = [_label(text[a:b]) for a, b in found]
    counts = Counter(kinds)
    for kind in [kind for kind in dict.fromkeys(kinds[:12]) if 1 < counts[kind] < len(kinds)]:
        places = [i for i, each in enumerate(kinds) if each == kind]
        sizes = Counter(b - a for a, b in pairwise(places))
        usual = sizes.most_common(1)[0][0]
        if usual > 1:
            last = min(places[-1] + usual, len(found))
            yield [(found[a][0], found[b - 1][1]) for a, b in pairwise([*places, last])]


def _label(line: str) -> str:
    """What a line of a record begins with: its first word and the marks before it, no values."""
    made = ""
    for token in tokens(line.strip()):
        if token.kind == "punct" or (not made and token.kind not in ("int", "id", "date")):
            made += token.text
        elif token.kind != "space":
            break
    return made


#: Ways that a format marks itself: taken wherever they hold most of the text.
MARKED = frozenset({"JSON members", "elements"})
#: How to cut; the earlier of two that describe equally well is taken.
SPLITS: tuple[tuple[str, Callable[[str], list[Span]]], ...] = (
    ("JSON members", json_members),
    ("elements", elements),
    ("blocks", blocks),
    ("lines", lines),
    ("sentences", sentences),
)


def candidates(texts: list[str]) -> Iterator[tuple[str, list[list[Span]]]]:
    """Every way to cut that finds something in each text."""
    for name, split in SPLITS:
        spans = [split(text) for text in texts]
        if all(spans):
            yield name, spans
    grouped = [list(starters(text)) for text in texts]
    for each in zip(*grouped, strict=False):
        yield "groups of lines", list(each)
