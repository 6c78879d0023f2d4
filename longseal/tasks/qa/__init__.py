"""Questions about long texts: items of LongBench and LV-Eval, from files that the user names.

Prompts, answer budgets and scores are the published ones (formats.json). Both benchmarks' DuReader
sets are left out: their ROUGE-L is that of one package, no longer kept, and others count otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longseal.tasks.qa.formats import Variants, find, variants
from longseal.tasks.qa.items import Item, read, samples
from longseal.tasks.qa.scoring import best_f1
from longseal.tasks.qa.truncate import truncate_middle
from longseal.tasks.sample import Family, Material, NoMaterialError, Question, Recorded

__all__ = ["FAMILY", "QuestionAnswering", "truncate_middle"]

_MIXED = "mixed"


class QuestionAnswering(Recorded):
    """Items of one dataset or of several.

    Attributes:
        max_new_tokens: the largest budget among the datasets; a question's own stands in its
            `fields`.
    """

    about = "questions about long texts: items of LongBench or LV-Eval in a file of yours"
    source = "LongBench (THUDM/LongBench at 2e00731), LV-Eval (infinigence/LVEval at 63e7ae9)"
    metric = "f1"

    def __init__(self, name: str, items: Sequence[Item]) -> None:
        super().__init__(name, samples(items))
        self.max_new_tokens = max(item.format.max_new_tokens for item in items)

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """The published F1: of words, best over the references, after LV-Eval's gate."""
        return {"f1": best_f1(prediction, question)}


def _make(variant: str, material: Material) -> QuestionAnswering:
    named = "" if variant in ("", _MIXED) else variant
    name = f"qa/{named}" if named else "qa"
    if named:
        find(named)
    if not material.data:
        raise NoMaterialError(
            f"the task {name} needs a file of LongBench's or LV-Eval's items, JSON lines with "
            f"input, context, answers{'' if named else ' and dataset'}: --data FILE.jsonl"
        )
    return QuestionAnswering(name, read(material.data, named))


FAMILY = Family(
    "qa",
    QuestionAnswering.about,
    _make,
    Variants({_MIXED: "each row as the dataset that it names", **variants()}),
    source=QuestionAnswering.source,
    takes="--data: items of LongBench or LV-Eval as JSON lines, asked as they are",
)
