"""longseal makes a long-context language model find what stands in its own context."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longseal.config import EvaluateConfig, LoadConfig, ProbeConfig, RunConfig, TuneConfig
    from longseal.errors import LongsealError
    from longseal.evaluation import Comparison, Evaluation, compare, evaluate
    from longseal.fold import Folded, fold
    from longseal.models.load import LanguageModel, load
    from longseal.pipeline import Outcome, run
    from longseal.probing import Probe, probe
    from longseal.report import report
    from longseal.scales import Adapter, Attached, attached
    from longseal.tasks import task
    from longseal.tuning import tune

_HOMES = {
    "longseal.config": ("EvaluateConfig", "LoadConfig", "ProbeConfig", "RunConfig", "TuneConfig"),
    "longseal.errors": ("LongsealError",),
    "longseal.evaluation": ("Comparison", "Evaluation", "compare", "evaluate"),
    "longseal.fold": ("Folded", "fold"),
    "longseal.models.load": ("LanguageModel", "load"),
    "longseal.pipeline": ("Outcome", "run"),
    "longseal.probing": ("Probe", "probe"),
    "longseal.report": ("report",),
    "longseal.scales": ("Adapter", "Attached", "attached"),
    "longseal.tasks": ("task",),
    "longseal.tuning": ("tune",),
}

__all__ = [
    "Adapter",
    "Attached",
    "Comparison",
    "EvaluateConfig",
    "Evaluation",
    "Folded",
    "LanguageModel",
    "LoadConfig",
    "LongsealError",
    "Outcome",
    "Probe",
    "ProbeConfig",
    "RunConfig",
    "TuneConfig",
    "attached",
    "compare",
    "evaluate",
    "fold",
    "load",
    "probe",
    "report",
    "run",
    "task",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `longseal --help` need not wait for torch."""
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'longseal' has no attribute {name!r}")


class _Public(ModuleType):
    """Keeps `longseal.fold` the function: importing the package of that name would hide it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Public
