"""RULER's 13 tasks, in its formats and by its scores (NVIDIA/RULER, Apache-2.0)."""

from __future__ import annotations

from longseal.tasks.haystack import read_haystack
from longseal.tasks.ruler.cwe import CommonWords
from longseal.tasks.ruler.fwe import FrequentWords
from longseal.tasks.ruler.niah import VARIANTS, Niah
from longseal.tasks.ruler.qa import KINDS, Qa
from longseal.tasks.ruler.vt import VariableTracking
from longseal.tasks.sample import Family, Material, Task

_OTHERS: dict[str, Task] = {
    "vt": VariableTracking(),
    "cwe": CommonWords(),
    "fwe": FrequentWords(),
}


def _make(variant: str, material: Material) -> Task:
    if variant in VARIANTS:
        return Niah(variant, read_haystack(material.haystack))
    if variant in KINDS:
        return Qa(variant, material.data)
    return _OTHERS[variant]


FAMILY = Family(
    "ruler",
    "RULER's 13 tasks: retrieval, tracing, aggregation and questions",
    _make,
    variants={
        **{name: needles.about for name, needles in VARIANTS.items()},
        **{name: task.about for name, task in _OTHERS.items()},
        **{
            name: f"a question on one document among many, from {f}"
            for name, (_, f) in KINDS.items()
        },
    },
    whole=True,
    source=VariableTracking.source,
    takes=(
        "--haystack: text to hide needles in [default: essays of this project]; "
        "--data: SQuAD's and HotpotQA's files, for qa_1 and qa_2"
    ),
)
