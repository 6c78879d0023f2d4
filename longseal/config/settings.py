"""What every command takes, and what evaluation takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field

from longseal.config.extension import Extend
from longseal.config.kinds import Depths, Dtype, Engine, Length, Lengths, Names, Part, Quantization


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
    extend: Annotated[
        Extend | None,
        Parameter(
            help="Reach past the window without training: ntk:4, linear:4, dynamic:4, yarn:4 or "
            "self-extend:8:1024 (longseal extend MODEL --to 16k chooses)."
        ),
    ] = None
    force: Annotated[
        bool,
        Parameter(help="Extend a model too that scales its positions already.", negative=()),
    ] = False
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
