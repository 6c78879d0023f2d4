"""Text cut into tokens whose kinds say what can vary: numbers, dates, ids, names, words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise

from longseal.errors import LongsealError
from longseal.tasks.own.dates import DATES

_FUNCTION_WORDS = (
    "a an and are as at be but by can could did do does for from had has have he her him his how i "
    "if in into is it its may me my no not of on or our out per she should so than that the their "
    "them then there these they this those to under up was we were what when where which who whom "
    "whose why will with would you your"
)
#: Words that carry a sentence's form, not its content.
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
#: Kinds that are words; every other value kind is data.
WORDS = frozenset({"lower", "title", "upper", "mixed"})
LAYOUT = frozenset({"space", "newline", "punct"})
#: Words from which on a run of them is a free sentence and not a name or a label.
SENTENCE = 5
_IN_SENTENCE = frozenset({",", ";", ".", "!", "?", "'", "’", "-"})

#: Kana, ideographs and Hangul, as what stands in brackets of a pattern.
CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = rf"(?:(?![{CJK}])[^\W\d_])+"
_LEXER = re.compile(
    "|".join(
        f"(?P<{kind}>{pattern})"
        for kind, pattern in (
            ("uuid", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
            ("email", r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
            ("url", r"\bhttps?://[^\s\"'<>|,)\]]+[^\s\"'<>|,)\].;:!?]"),
            ("date", "|".join(form.pattern for form in DATES.values())),
            ("ip", r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)"),
            (
                "id",
                r"(?<![A-Za-z0-9])(?=[A-Za-z0-9_/-]*[0-9])(?=[A-Za-z0-9_/-]*[A-Za-z]|[0-9]+[-_/])"
                r"[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*(?![A-Za-z0-9])",
            ),
            # A comma groups digits only where no comma comes before or after: it may part columns.
            ("decimal", r"(?<![,\d])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!,?\d)|\d+\.\d+(?![.\d])"),
            ("int", r"\d+"),
            ("cjk", rf"[{CJK}]"),
            ("word", rf"{_WORD}(?:[-'’_]{_WORD})*"),
            ("newline", r"\r?\n"),
            ("space", r"[^\S\n]+"),
            ("punct", r"."),
        )
    ),
    re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of text.

    Attributes:
        kind: what it is; a word's kind tells its letters' case. `kept` where the user wants it so.
        varied: the user wants it drawn anew.
        inner: the tokens of a run of words.
    """

    text: str
    kind: str
    varied: bool = False
    inner: tuple[Token, ...] = ()

    @property
    def literal(self) -> bool:
        """Whether it is form wherever it stands: spacing, punctuation, a function word."""
        if self.varied or self.kind in LAYOUT:
            return self.kind in LAYOUT
        return self.kind == "kept" or self.text.lower() in FUNCTION_WORDS


Tokens = Sequence[Token]


@cache
def tokens(text: str) -> tuple[Token, ...]:
    """All tokens of a text, nothing left out."""
    return tuple(
        Token(match[0], _kind(match.lastgroup or "", match[0])) for match in _LEXER.finditer(text)
    )


@dataclass(frozen=True)
class Marks:
    """What the user says is format (`keep`) and what is content (`vary`)."""

    keep: tuple[re.Pattern[str], ...] = ()
    vary: tuple[re.Pattern[str], ...] = ()

    def tokens(self, text: str) -> tuple[Token, ...]:
        """Tokens, those marked that are kept or that `vary` touches.

        What is kept is cut out of a token that goes on beyond it: the rest is content.
        """
        kept, varied = _spans(self.keep, text), _spans(self.vary, text)
        cuts = sorted({0, len(text), *(place for span in kept for place in span)})
        made: list[Token] = []
        for start, end in pairwise(cuts):
            whole = any(left <= start and end <= right for left, right in kept)
            made += [_kept(token) if whole else token for token in tokens(text[start:end])]
        starts = accumulate((len(token.text) for token in made), initial=0)
        return tuple(
            _varied(token)
            if any(start < at + len(token.text) and at < end for start, end in varied)
            else token
            for token, at in zip(made, starts, strict=False)
        )


def read_marks(keep: Iterable[str], vary: Iterable[str], texts: Sequence[str]) -> Marks:
    """Marks from texts or regular expressions, as the user gives them.

    Raises:
        LongsealError: one is neither in the examples nor a regular expression that matches there.
    """
    return Marks(
        tuple(_pattern("--keep", each, texts) for each in keep),
        tuple(_pattern("--vary", each, texts) for each in vary),
    )


def _spans(patterns: Iterable[re.Pattern[str]], text: str) -> list[tuple[int, int]]:
    return [match.span() for pattern in patterns for match in pattern.finditer(text) if match[0]]


def _pattern(flag: str, wanted: str, texts: Sequence[str]) -> re.Pattern[str]:
    if wanted and any(wanted in text for text in texts):
        return re.compile(re.escape(wanted))
    try:
        pattern = re.compile(wanted, re.MULTILINE)
    except re.error as error:
        raise LongsealError(
            f"{flag} {wanted!r} is not in the examples, and is no regular expression: {error}"
        ) from error
    if not any(match[0] for text in texts for match in pattern.finditer(text)):
        raise LongsealError(f"{flag} {wanted!r} matches nothing in the examples")
    return pattern


def _kept(token: Token) -> Token:
    return token if token.kind in LAYOUT else replace(token, kind="kept")


def _varied(token: Token) -> Token:
    return token if token.kind in LAYOUT else replace(token, varied=True)


def runs(made: Tokens) -> list[Token]:
    """Tokens with each free sentence (five words or more, with their commas) as one, `text`."""
    result: list[Token] = []
    run: list[Token] = []
    for token in (*made, Token("", "end")):
        inner = token.kind == "space" or token.text in _IN_SENTENCE
        if _spoken(token) or (run and inner):
            run.append(token)
            continue
        tail: list[Token] = []
        while run and not _spoken(run[-1]):
            tail.insert(0, run.pop())
        if sum(map(_spoken, run)) >= SENTENCE:
            whole = "".join(each.text for each in run)
            varied = any(each.varied for each in run)
            run = [Token(whole, "text", varied, tuple(run))]
        result += [*run, *tail, *([token] if token.text else [])]
        run = []
    return result


def _spoken(token: Token) -> float:
    """How many words a token is: two ideographs are as long as one."""
    return 1.0 if token.kind in WORDS else 0.5 if token.kind == "cjk" else 0.0


def _kind(kind: str, text: str) -> str:
    if kind == "word":
        if text.islower() or not (text.isupper() or text.istitle() or text[0].isupper()):
            return "lower" if text.islower() or text.lower() == text.upper() else "mixed"
        if text.isupper() and len(text) > 1:
            return "upper"
        return "title" if text[1:].lower() == text[1:] or text.istitle() else "mixed"
    return kind
