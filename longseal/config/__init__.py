"""Settings: what a flag sets, a function takes and a saved run shows is one frozen model.

Lengths are tokens of the model's own tokenizer, chat template included; "2k" is 2048, as in RULER.
"""

from longseal.config.extension import Extend, Extension
from longseal.config.kinds import (
    Depth,
    Kind,
    Length,
    Part,
    Projection,
    Quantization,
    ScaleKind,
    weighted,
)
from longseal.config.probing import ProbeConfig
from longseal.config.settings import EvaluateConfig, LoadConfig, Settings, TaskSettings
from longseal.config.tuning import RunConfig, TuneConfig, TuneSettings

__all__ = [
    "Depth",
    "EvaluateConfig",
    "Extend",
    "Extension",
    "Kind",
    "Length",
    "LoadConfig",
    "Part",
    "ProbeConfig",
    "Projection",
    "Quantization",
    "RunConfig",
    "ScaleKind",
    "Settings",
    "TaskSettings",
    "TuneConfig",
    "TuneSettings",
    "weighted",
]
