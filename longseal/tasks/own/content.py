"""A language model writes the content of what is asked for, where it would be drawn otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from longseal.errors import LongsealError
from longseal.tasks.own.drawing import Write
from longseal.tasks.own.leaves import Leaf, Name, Text, Word
from longseal.tasks.own.task import Writes
from longseal.tasks.own.vocabulary import PROSE_WORD

if TYPE_CHECKING:  # it needs torch
    from longseal.tasks.own.writer import Writer

_TRIES = 4
_AROUND = 300  # characters of the record that the writer sees on each side of the blank


def writes(writer: Writer) -> Writes:
    """Content by a language model for names, words and free sentences; data is drawn all the same.

    What was written for a question is kept, so that a sample of another size has it too.
    """
    known: dict[str, str] = {}

    def of(seed: str, question: int) -> Write:
        def write(leaf: Leaf, marked: str) -> str | None:
            wish = _wish(leaf)
            if wish is None:
                return None
            place = marked.index("____")
            shown = marked[max(0, place - _AROUND) : place + 4 + _AROUND]
            key = f"{seed}/{question}/{leaf!r}/{shown}"
            if key not in known:
                known[key] = _written(writer, wish, shown, key)
            return known[key]

        return write

    return of


#: What to ask for, and what to make of the words of a reply: None where they are not that.
_Wish = tuple[str, Callable[[list[str]], str | None]]


def _wish(leaf: Leaf) -> _Wish | None:
    """None for what is drawn all the same."""
    match leaf:
        case Text():
            few, many = (leaf.words + 1) // 2, 2 * leaf.words

            def phrase(words: list[str]) -> str | None:
                if not few <= len(words) <= many:
                    return None
                first = words[0][0].upper() if leaf.capital else words[0][0].lower()
                return first + " ".join(words)[1:]

            return f"a piece of prose of {leaf.words} words, without numbers", phrase
        case Name():
            return f"a person's {leaf.part} name", _one(str.title)
        case Word(joints=""):
            return "one word, a noun", _one(leaf.cased)
        case _:
            return None


def _one(change: Callable[[str], str]) -> Callable[[list[str]], str | None]:
    return lambda words: change(words[0]) if len(words) == 1 else None


def _written(writer: Writer, wish: _Wish, shown: str, key: str) -> str:
    what, take = wish
    instruction = (
        f"Fill the blank ____ in the text below with {what}. Invent it. Reply with what stands in "
        f"the blank and nothing else, on one line.\n\n{shown}"
    )
    reply = ""
    for attempt in range(_TRIES):
        seed = int.from_bytes(sha256(f"{key}/{attempt}".encode()).digest()[:4])
        reply = writer.write(instruction, seed).strip()
        # Marks and digits could break the format: words alone are taken, in one line.
        made = take(PROSE_WORD.findall(reply)) if reply and "\n" not in reply else None
        if made and not re.search(r"\d", reply):
            return made
    said = " ".join(reply.split())[:60]
    raise LongsealError(
        f"the writer was asked {_TRIES} times for {what} and wrote {said!r}: try a larger model "
        "with --writer, or none"
    )
