"""Settings: what a flag sets, a function takes and a saved run shows is one frozen model.

Lengths are tokens of the model's own tokenizer, chat template included; "2k" is 2048, as in RULER.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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


class Settings(BaseModel):
    """Base of all settings: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LoadConfig(Settings):
    """How a model is loaded."""

    dtype: Annotated[Dtype, Parameter(help="Number format of the weights in memory.")] = "auto"
    device: Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps, or auto.")] = "auto"
    quantize: Annotated[
        Quantization | None,
        Parameter(help="Load the weights in 4 or 8 bits, by bitsandbytes."),
    ] = None
    trust_remote_code: Annotated[
        bool, Parameter(help="Run Python code that comes with the model.", negative=())
    ] = False


class TaskSettings(Settings):
    """What tasks are made of."""

    data: Annotated[
        tuple[Path, ...],
        Parameter(
            help="File of samples, or of what they are made from; may be repeated.", negative=()
        ),
    ] = ()
    haystack: Annotated[
        Path | None,
        Parameter(help="Text file, or folder of them, to hide needles in. [default: built in]"),
    ] = None
    thinking: Annotated[
        Length, Parameter(help="Tokens for the thoughts of a model that cannot be told not to.")
    ] = 2048


class EvaluateConfig(TaskSettings):
    """What is measured: `samples` questions at each length, several to a context."""

    task: Annotated[
        Names, Parameter(help="Tasks (longseal tasks lists them), or a task file.", negative=())
    ] = ("lines",)
    lengths: Annotated[
        Lengths, Parameter(help="Prompt lengths in tokens, such as 512,1k,2k.", negative=())
    ] = (512, 1024, 2048)
    samples: Annotated[
        int | None,
        Field(gt=0),
        Parameter(help="Questions at each length. [default: about 24; all that a file holds]"),
    ] = None
    questions: Annotated[int, Field(gt=0), Parameter(help="Questions that share one context.")] = 4
    depths: Annotated[
        Depths | None,
        Parameter(
            help="Where answers stand, 0 to 1, such as 0,0.5,1: one context each. "
            "[default: the task's own]",
            negative=(),
        ),
    ] = None
    truncate: Annotated[
        Length | None,
        Parameter(help="Cut longer prompts of a file in the middle, as LongBench does."),
    ] = None
    part: Annotated[
        Part, Parameter(help="Of the samples of a file: all, or those tuning leaves for a test.")
    ] = "all"
    engine: Annotated[
        Engine, Parameter(help="What answers: transformers, or vllm (a folded model).")
    ] = "transformers"
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0


class TuneSettings(TaskSettings):
    """How scales are learned, wherever they are judged."""

    kind: Annotated[
        Kind,
        Parameter(
            help="One scale a head (SEAL-H), one a channel (SEAL-C), or a rank-4 adapter of PEFT's."
        ),
    ] = "channel"
    train_length: Annotated[
        Length | None,
        Parameter(
            help="Length of the training contexts. [default: from 512 or 1k on, as far as it pays]"
        ),
    ] = None
    recipe: Annotated[
        Recipe, Parameter(help="Ours, or the paper's own settings: full length, one question each.")
    ] = "longseal"
    lr: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False),
        Parameter(help="Constant learning rate. [default: chosen]"),
    ] = None
    steps: Annotated[
        int | None,
        Field(gt=0),
        Parameter(help="Optimiser steps at the first training length. [default: by --samples]"),
    ] = None
    guard: Annotated[
        Guard,
        BeforeValidator(parse_guard),
        Parameter(
            help="Most that other formats may lose, in points (one answer each is forgiven), and "
            "text, in % of perplexity; or off."
        ),
    ] = 2.0
    guard_task: Annotated[
        tuple[str, ...],
        BeforeValidator(parse_words),
        Parameter(help="Formats that must not get worse. [default: built-in ones]", negative=()),
    ] = ()
    guard_text: Annotated[
        tuple[Path, ...],
        Parameter(help="Text files that the model must go on to read as before.", negative=()),
    ] = ()


class TuneConfig(TuneSettings):
    """What is learned, from what, and where it is judged."""

    task: WeightedNames = ("lines",)
    length: Annotated[
        Span,
        Parameter(help="Length at which the scales are judged, such as 2k or 4k-31k.", negative=()),
    ] = (2048,)
    samples: Annotated[
        int | None,
        Field(gt=0),
        Parameter(help="Training questions at the first training length. [default: 64 a task]"),
    ] = None
    questions: Annotated[
        int, Field(gt=0), Parameter(help="Training questions that share one context.")
    ] = 8
    held_out: Annotated[
        int, Field(gt=0), Parameter(help="Held-out questions that the choice is made on, a task.")
    ] = 8
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks' names, without their weights."""
        return tuple(name for name, _ in map(weighted, self.task))


class RunConfig(TuneSettings):
    """The whole way: evaluate, tune, evaluate, fold, reload, evaluate, report."""

    task: WeightedNames = ("lines",)
    lengths: Annotated[
        Lengths,
        Parameter(help="Prompt lengths to evaluate, in tokens, such as 512,1k,2k.", negative=()),
    ] = (512, 1024, 2048)
    length: Annotated[
        Span | None,
        Parameter(
            help="Length at which the scales are judged. [default: the longest]", negative=()
        ),
    ] = None
    samples: Annotated[
        int | None,
        Field(gt=0),
        Parameter(help="Questions at each length. [default: about 24; all that a file holds]"),
    ] = None
    questions: Annotated[int, Field(gt=0), Parameter(help="Questions that share one context.")] = 4
    train_samples: Annotated[
        int | None,
        Field(gt=0),
        Parameter(help="Training questions at the first training length. [default: 64 a task]"),
    ] = None
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0

    @property
    def evaluation(self) -> EvaluateConfig:
        """What is measured, the same for every variant."""
        return EvaluateConfig(
            **self._of(TaskSettings),
            task=self.tuning.tasks,
            part="test",
            lengths=self.lengths,
            samples=self.samples,
            questions=self.questions,
            seed=self.seed,
        )

    @property
    def tuning(self) -> TuneConfig:
        """What is learned."""
        return TuneConfig(
            **self._of(TuneSettings),
            task=self.task,
            length=self.length or (max(self.lengths),),
            samples=self.train_samples,
            seed=self.seed,
        )

    def _of(self, settings: type[Settings]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in settings.model_fields}


class ProbeConfig(TaskSettings):
    """Which heads are looked at, how, and on what questions."""

    task: Annotated[str, Parameter(help="A task (longseal tasks lists them), or a task file.")] = (
        "lines"
    )
    lengths: Annotated[
        Lengths, Parameter(help="Prompt lengths in tokens, such as 1k,2k.", negative=())
    ] = (1024, 2048)
    method: Annotated[
        Method,
        Parameter(
            help="exact prunes each head in turn; gradient estimates all at once; tail prunes from "
            "the question on; audit estimates all and confirms some."
        ),
    ] = "audit"
    prune: Annotated[
        tuple[str, ...],
        Parameter(
            help="Heads to prune together, such as L1H18,L13H16, L5 (a layer) or L5G2 (a key-value "
            "group), in the place of every head by itself; may be repeated.",
            negative=(),
        ),
    ] = ()
    channels: Annotated[
        str | None, Parameter(help="A head, such as L1H18, whose channels are looked at instead.")
    ] = None
    quadrants: Annotated[
        bool,
        Parameter(
            help="Part the heads by their influence at the two greatest lengths, and rescale "
            "quadrants.",
            negative=(),
        ),
    ] = False
    rescale: Annotated[
        tuple[str, ...],
        Parameter(
            help="Factors of quadrants (Q1: better without them at both lengths; Q3: worse), such "
            "as Q1:0.9,Q3:1.1; may be repeated.",
            negative=(),
        ),
    ] = ("Q1:0.9", "Q3:0.9", "Q1:0.9,Q3:1.1")
    samples: Annotated[int, Field(gt=0), Parameter(help="Questions at each length.")] = 8
    questions: Annotated[int, Field(gt=0), Parameter(help="Questions that share one context.")] = 4
    ends: Annotated[
        int, Field(gt=0), Parameter(help="Of an audit: how many of the lowest and of the highest.")
    ] = 8
    drawn: Annotated[
        int, Field(ge=0), Parameter(help="Of an audit: how many of the rest, at random.")
    ] = 16
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0
