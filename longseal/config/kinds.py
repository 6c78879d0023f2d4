"""The kinds of values that settings have, and how they are written as flags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import BeforeValidator, Field

from longseal.errors import LongsealError

#: Kinds of scales (SEAL-H, SEAL-C), and of all that can be tuned (SEAL-L, SEAL-D through PEFT).
ScaleKind = Literal["head", "channel"]
Kind = Literal["head", "channel", "lora", "dora"]
#: Where scales are folded into: the output projections' inputs, or the values' outputs.
Projection = Literal["output", "value"]
#: Of the samples of a file: those to tune on, to choose on, and to test on.
Part = Literal["all", "train", "held-out", "test"]
#: What answers: this process, or vLLM for a folded model.
Engine = Literal["transformers", "vllm"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["4bit", "8bit"]
Recipe = Literal["longseal", "paper"]
#: How a head's influence is found: see ProbeConfig.
Method = Literal["exact", "gradient", "tail", "audit"]
#: What other formats may lose, in points, and text in percent of perplexity; None: nobody looks.
Guard = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None

_LENGTH = re.compile(r"(\d+)(k?)", re.IGNORECASE)


def parse_length(value: object) -> object:
    """Turn "512" or "2k" into tokens (k = 1024); anything else is left for pydantic to judge.

    >>> parse_length("2k")
    2048
    """
    if not isinstance(value, str):
        return value
    match = _LENGTH.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a length: write a number of tokens such as 2048 or 2k")
    return int(match[1]) * (1024 if match[2] else 1)


def parse_lengths(value: object) -> object:
    """Turn "512,1k,2k", or a sequence of such, into a tuple of tokens without repeats."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        return value
    return tuple(dict.fromkeys(map(parse_length, _words(value))))


def parse_words(value: object) -> object:
    """Turn "a,b", or a sequence of such, into a tuple without repeats."""
    if isinstance(value, str):
        value = [value]
    return tuple(dict.fromkeys(_words(value))) if isinstance(value, Sequence) else value


def _words(value: Sequence[object]) -> list[object]:
    return [
        part for item in value for part in (item.split(",") if isinstance(item, str) else [item])
    ]


def parse_span(value: object) -> object:
    """Turn "2k" into (2048,), and "4k-31k" into (4096, 31744)."""
    given = value if isinstance(value, list | tuple) else (value,)
    parts = [p for item in given for p in _ends(item)]
    span = tuple(map(parse_length, parts))
    numbers = [end for end in span if isinstance(end, int)]
    if len(span) > 2 or numbers != sorted(set(numbers)):
        raise ValueError(f"{'-'.join(map(str, parts))} is no range of lengths: write 2k, or 4k-31k")
    return span


def _ends(item: object) -> list[object]:
    """Both lengths of a range that is written as one word; else what is given."""
    match = re.fullmatch(r"([^-]+)-([^-]+)", item) if isinstance(item, str) else None
    return [item] if match is None else [match[1], match[2]]


def parse_guard(value: object) -> object:
    """Turn "off" into None; a number is left for pydantic to judge."""
    return None if value == "off" else value


def weighted(name: str) -> tuple[str, float]:
    """A task's name and its weight: 1 where none is written behind a colon.

    Raises:
        LongsealError: the weight is not above 0.

    >>> weighted("needle:2"), weighted("lines")
    (('needle', 2.0), ('lines', 1.0))
    """
    start, colon, end = name.rpartition(":")
    if not colon:
        return name, 1.0
    try:
        weight = float(end)
    except ValueError:
        return name, 1.0  # the colon is the name's own
    if not 0 < weight < inf:
        raise LongsealError(f"the weight of {start} is {end}: give a number above 0")
    return start, weight


Names = Annotated[tuple[str, ...], BeforeValidator(parse_words), Field(min_length=1)]
Depth = Annotated[float, Field(ge=0, le=1)]
Depths = Annotated[tuple[Depth, ...], BeforeValidator(parse_words), Field(min_length=1)]
Length = Annotated[int, BeforeValidator(parse_length), Field(gt=0)]
Lengths = Annotated[tuple[Length, ...], BeforeValidator(parse_lengths), Field(min_length=1)]
#: One length, or the least and the greatest of a range.
Span = Annotated[tuple[Length, ...], BeforeValidator(parse_span), Field(min_length=1)]


WeightedNames = Annotated[
    Names,
    Parameter(
        help="Tasks (longseal tasks lists them) or task files, each with :WEIGHT if it is to "
        "count more or less.",
        negative=(),
    ),
]
