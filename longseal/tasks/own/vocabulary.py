"""Words, names and prose that content is drawn from."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from itertools import pairwise

from faker.providers.lorem.zh_CN import Provider as Chinese
from faker.providers.person.en_US import Provider as Person

from longseal.tasks.haystack import Haystack, sentence_ends
from longseal.tasks.words import dictionary

#: A word of prose, without its punctuation.
PROSE_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")


@cache
def first_names() -> tuple[str, ...]:
    """First names (Faker's, en_US), sorted."""
    return tuple(sorted(set(Person.first_names)))


@cache
def last_names() -> tuple[str, ...]:
    """Last names (Faker's, en_US), sorted."""
    return tuple(sorted(set(Person.last_names)))


@cache
def nouns() -> tuple[str, ...]:
    """Nouns (wonderwords'), of plain letters alone, sorted."""
    return tuple(word for word in dictionary("nouns") if re.fullmatch("[a-z]{3,10}", word))


@cache
def letters(script: str, upper: bool = False) -> str:
    """Letters of a script: for CJK those of Faker's Chinese words, and all of any other."""
    if script == "CJK":
        return "".join(sorted(set("".join(Chinese.word_list))))
    found = [
        char
        for char in map(chr, range(0x80, min(sys.maxunicode, 0x10000)))
        if char.isalpha() and unicodedata.name(char, "").startswith(f"{script} ")
    ]
    # The letters that people write stand before the extensions of a script, syllables in order.
    plain = [char for char in found if unicodedata.normalize("NFKC", char) == char]
    cased = [char for char in plain if char.isupper() == upper] or plain or found or ["x"]
    return "".join(cased if script == "HANGUL" else cased[:60])


@cache
def prose(haystack: Haystack) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words of a haystack without their punctuation, and where sentences begin among them."""
    said: list[str] = []
    starts: list[int] = []
    for document in haystack.documents:
        ends = [0, *sentence_ends(document), len(document)]
        for start, end in pairwise(ends):
            found = PROSE_WORD.findall(document[start:end])
            if found:
                starts.append(len(said))
                said += found
    return tuple(said), tuple(starts)
