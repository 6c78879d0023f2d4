"""Text to hide things in: prose of this project's own, or the user's in any script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from random import Random

from longseal.errors import LongsealError
from longseal.tasks.jsonl import read_text

_PROSE = Path(__file__).with_name("prose")
#: A sentence's end: its mark, closing quotes or brackets, then a space, or no space after the
#: marks of scripts that write none.
_END = re.compile(r"[.!?؟۔।…]+[\"'”’»)\]]*(?=\s)|[。！？｡]+[」』”’）]*")
#: Scripts that are written without spaces (kana, Han, Thai, Lao, Burmese, Khmer), and their marks
#: that belong to the character before.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U000323af"
)
_MARKS = (
    r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece"
    r"\u102b-\u103e\u17b4-\u17d3\u3099\u309a\ufe00-\ufe0f"
)
#: A unit of size: a character of such a script, or else a word.
_UNIT = re.compile(rf"[{_UNSPACED}][{_MARKS}]*|[^\s{_UNSPACED}]+")
_PARAGRAPH = re.compile(r"\n\s*\n")
#: Control characters but line breaks and tabs: no text, and some tokenizers drop or split them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Haystack:
    """Documents in a fixed shuffled order, looped in another order where more is needed.

    Attributes:
        documents: texts, in the order of their files' names.
        name: where they are from.
    """

    documents: tuple[str, ...]
    name: str = "built in"

    def text(self, size: int, random: Random | None = None) -> str:
        """The first `size` words (characters, in scripts without spaces).

        Args:
            size: units; `units` counts them.
            random: start at a paragraph (a sentence, where there is but one paragraph) that it
                draws, instead of at the first document.
        """
        loop = 0
        order = [self._loop(0)]
        start = 0
        if random is not None:
            start = random.choice(_starts(order[0]))
        while size:
            text = "\n\n".join(order)[start:]
            last = next(islice(_UNIT.finditer(text), size - 1, None), None)
            if last is not None:
                return text[: last.end()]
            for _ in range(1 + (size - units(text)) // max(1, self._size)):
                loop += 1
                order.append(self._loop(loop))
        return ""

    @cached_property
    def _size(self) -> int:
        return sum(map(units, self.documents))

    @cache  # noqa: B019 (few haystacks are made, and they live as long as the program)
    def _loop(self, loop: int) -> str:
        shuffled = list(self.documents)
        Random(f"haystack/{loop}").shuffle(shuffled)
        return "\n\n".join(shuffled)


def units(text: str) -> int:
    """How many words (characters, in scripts without spaces) a text has."""
    return sum(1 for _ in _UNIT.finditer(text))


def unit_ends(text: str) -> list[int]:
    """Where each word (character) of a text ends, in characters."""
    return [match.end() for match in _UNIT.finditer(text)]


def sentence_ends(text: str) -> list[int]:
    """Where each sentence of a text ends, in characters; a last one without a mark is not there."""
    return [match.end() for match in _END.finditer(text)]


def _starts(text: str) -> list[int]:
    """Where paragraphs begin, in characters; sentences, where there is but one paragraph."""
    breaks = [match.end() for match in _PARAGRAPH.finditer(text)]
    if not breaks:
        breaks = [match.end() for match in re.finditer(rf"(?:{_END.pattern})\s*(?=\S)", text)]
    return [0, *breaks]


@cache
def built_in() -> Haystack:
    """Essays on varied subjects, written for this project."""
    return Haystack(tuple(path.read_text("utf-8").strip() for path in sorted(_PROSE.glob("*.txt"))))


@cache
def read_haystack(path: Path | None) -> Haystack:
    """The text of a file, or of all .txt and .md files of a folder; the built-in prose for None.

    Raises:
        LongsealError: nothing is there, it is not UTF-8, or it is shorter than a sentence.
    """
    if path is None:
        return built_in()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in (".txt", ".md"))
        if not files:
            raise LongsealError(f"{path} holds no .txt or .md files to make a haystack of")
    else:
        files = [path]
    texts = [_CONTROL.sub("", read_text(file)).strip() for file in files]
    made = Haystack(tuple(text for text in texts if text), str(path))
    if not any(sentence_ends(f"{text} ") for text in made.documents):
        raise LongsealError(
            f"{path} holds no whole sentence: a haystack is text with sentences, best of some "
            "thousand words"
        )
    return made
