"""How scales are learned, by itself and within a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BeforeValidator, Field

from longseal.config.kinds import (
    Guard,
    Kind,
    Length,
    Lengths,
    Recipe,
    Span,
    WeightedNames,
    parse_guard,
    parse_words,
    weighted,
)
from longseal.config.settings import EvaluateConfig, Settings, TaskSettings


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
