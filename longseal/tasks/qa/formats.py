"""How LongBench and LV-Eval ask each of their datasets, as data: formats.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from longseal.errors import LongsealError

_PATH = Path(__file__).with_name("formats.json")
_LENGTH = re.compile(r"_\d+k$")


class Format(BaseModel):
    """What is published of a dataset beside its items.

    Attributes:
        prompt: the user's turn, with `{context}` and `{input}` where the item goes.
        language: en or zh: how words are told apart in scoring.
        suffixes: what its name may end with: `_e` (LongBench-E), `_16k` ... (LV-Eval's lengths).
        chat: False where the benchmark puts no chat template around the prompt.
        first_line: only the first line of an answer counts.
        first_answer: only the first reference counts.
        gate: the share of key words that an answer must hold to score at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    prompt: str
    max_new_tokens: int
    language: Literal["en", "zh"] = "en"
    suffixes: tuple[str, ...] = ()
    chat: bool = True
    first_line: bool = False
    first_answer: bool = False
    gate: float | None = None

    def fill(self, context: str, question: str) -> tuple[str, str]:
        """The prompt up to the context's end, and what follows. Braces in either text stay."""
        head, _, rest = self.prompt.partition("{context}")
        middle, _, tail = rest.partition("{input}")
        return head + context, middle + question + tail


class _Benchmark(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    datasets: Mapping[str, Format]
    stop_words: Mapping[str, str] = {}


class _Formats(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    longbench: _Benchmark
    lveval: _Benchmark
    left_out: Mapping[str, str]


_DATA = _Formats.model_validate_json(_PATH.read_text("utf-8"))

#: Formats by dataset, without suffixes.
FORMATS: Mapping[str, Format] = {**_DATA.longbench.datasets, **_DATA.lveval.datasets}
#: LV-Eval's words that do not count as key words found, by language.
STOP_WORDS = {language: frozenset(w.split()) for language, w in _DATA.lveval.stop_words.items()}

_BY_FULL_NAME = {
    base + suffix: format_
    for base, format_ in FORMATS.items()
    for suffix in ("", *format_.suffixes)
}


def find(name: str) -> Format:
    """The format of a dataset, whose name may end with one of its suffixes.

    Raises:
        LongsealError: there is no such dataset, or its score is not to be had.
    """
    if name in _BY_FULL_NAME:
        return _BY_FULL_NAME[name]
    why = _DATA.left_out.get(_LENGTH.sub("", name))
    if why is not None:
        raise LongsealError(f"the dataset {name} is left out: {why}, which longseal lacks")
    raise LongsealError(
        f"there are no questions called {name!r}: choose from {', '.join(FORMATS)} (with _e or "
        "_16k to _256k behind it where it is published so)"
    )


class Variants(dict[str, str]):
    """What may stand behind `qa/`.

    A length (`_16k`) may follow as well: those names are known, but not listed one by one.
    """

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in _BY_FULL_NAME

    def __missing__(self, name: str) -> str:
        return find(name).about


def variants() -> Variants:
    """Every dataset, and what it asks; `_e` sets on their own."""
    made = Variants()
    for base, format_ in FORMATS.items():
        made[base] = format_.about
        if "_e" in format_.suffixes:
            made[f"{base}_e"] = f"{format_.about}, by length"
    return made
