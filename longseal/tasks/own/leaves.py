"""What is drawn anew: a leaf says of what kind a piece of content is, and keeps none of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from longseal.tasks.own.dates import DATES, form_of
from longseal.tasks.own.tokens import WORDS, Token
from longseal.tasks.own.vocabulary import first_names, last_names


class Model(BaseModel):
    """What is written to a task file: nothing unknown in it, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Chars(Model):
    """Characters, class by class.

    Attributes:
        pattern: `*` a digit from 1, `#` any digit, `a` and `A` letters, `h` and `H` hexadecimal
            digits; anything else stands for itself.
    """

    kind: Literal["chars"] = "chars"
    pattern: str


class Date(Model):
    """A date or time in a form of `dates.DATES`.

    Attributes:
        gap: seconds between one record and the next, on average, where dates rise; 0 elsewhere.
    """

    kind: Literal["date"] = "date"
    form: Literal[tuple(DATES)]  # type: ignore[valid-type]  # the names of the forms
    gap: float = Field(default=0, ge=0)


class Word(Model):
    """One word, or several joined (`adj-noun`, `SNAKE_CASE`)."""

    kind: Literal["word"] = "word"
    case: Literal["lower", "title", "upper"]
    joints: str = ""

    def cased(self, word: str) -> str:
        """A word in this case."""
        return {"lower": word.lower(), "title": word.title(), "upper": word.upper()}[self.case]


class Name(Model):
    """A person's first or last name."""

    kind: Literal["name"] = "name"
    part: Literal["first", "last"]


class Text(Model):
    """A stretch of prose."""

    kind: Literal["text"] = "text"
    words: int = Field(ge=1)
    capital: bool


class Letters(Model):
    """Letters of a script other than Latin.

    Attributes:
        script: as Unicode names begin: CJK, HIRAGANA, CYRILLIC ...
        cases: `u` (upper) or `l` for each letter.
    """

    kind: Literal["letters"] = "letters"
    script: str
    cases: str = Field(pattern="^[ul]+$")


class Address(Model):
    """An e-mail address, a link or an IP number."""

    kind: Literal["email", "http", "https", "ip"]
    parts: int = Field(default=0, ge=0)  # of a link's path


class Counter(Model):
    """A number that goes up by a fixed step from record to record."""

    kind: Literal["counter"] = "counter"
    start: int
    step: int
    width: int


class Choice(Model):
    """One of a few words that come back again and again, which makes them format."""

    kind: Literal["choice"] = "choice"
    values: tuple[str, ...] = Field(min_length=1)


class Count(Model):
    """How many records there are."""

    kind: Literal["count"] = "count"


Leaf = Annotated[
    Chars | Date | Word | Name | Text | Letters | Address | Counter | Choice | Count,
    Field(discriminator="kind"),
]


def leaf(token: Token) -> Leaf:
    """What kind of content a token is."""
    text, kind = token.text, token.kind
    if kind == "kept" or kind in WORDS:
        return _word(text, kind)
    if kind == "text":
        count = sum(each.kind in WORDS for each in token.inner)
        if text.isascii() or _script(text) == "LATIN":
            return Text(words=count, capital=text[0].isupper())
        return Letters(script=_script(text), cases="l" * sum(map(str.isalpha, text)))
    if kind == "date":
        return Date(form=form_of(text))
    if kind == "email":
        return Address(kind="email")
    if kind == "ip":
        return Address(kind="ip")
    if kind == "url":
        scheme, _, rest = text.partition("://")
        return Address(kind="https" if scheme == "https" else "http", parts=rest.count("/"))
    if kind == "cjk":
        return Letters(script=_script(text), cases="l" * len(text))
    return Chars(pattern=_pattern(text, kind))


def _word(text: str, kind: str) -> Leaf:
    if not text.isascii() and _script(text) != "LATIN":
        cases = "".join("u" if c.isupper() else "l" for c in text if c.isalpha())
        return Letters(script=_script(text), cases=cases)
    if (kind == "upper" and len(text) <= 4) or len(text) == 1:
        return Chars(pattern=("A" if text.isupper() else "a") * len(text))
    if kind == "title" and text in first_names():
        return Name(part="first")
    if kind == "title" and text in last_names():
        return Name(part="last")
    case: Literal["lower", "title", "upper"] = "lower"
    if kind == "upper":
        case = "upper"
    elif text[0].isupper():
        case = "title"
    return Word(case=case, joints="".join(re.findall(r"[-'’_]", text)))


def _pattern(text: str, kind: str) -> str:
    if kind == "uuid" or (re.fullmatch(r"[0-9a-f]{8,}|[0-9A-F]{8,}", text) and not text.isdigit()):
        digit, lower, upper = ("H", "h", "H") if text.upper() == text else ("h", "h", "H")
    else:
        digit, lower, upper = "#", "a", "A"
    if kind == "int" and re.fullmatch(r"(19|20)\d\d", text):  # a year, most likely
        return text[:2] + "##"
    if kind in ("int", "decimal"):  # no leading zero where there was none, and none lost
        zero = text[0] == "0"
        rest = re.sub(r"\d", "#", text if zero and kind == "int" else text[1:])
        return rest if zero and kind == "int" else ("0" if zero else "*") + rest
    classes = ((r"[0-9]", digit), (r"[a-z]", lower), (r"[A-Z]", upper))
    return "".join(
        next((by for pattern, by in classes if re.match(pattern, char)), char) for char in text
    )


def _script(text: str) -> str:
    letter = next((char for char in text if char.isalpha()), text[0])
    return unicodedata.name(letter, "LATIN").split()[0]
