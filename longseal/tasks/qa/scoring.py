"""The F1 of LongBench and LV-Eval (their metrics.py; revisions stand in formats.json)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longseal.tasks.qa.formats import STOP_WORDS
from longseal.tasks.qa.words import WORDS
from longseal.tasks.sample import Question


def f1(said: Sequence[str], meant: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over words, repeated ones counted repeatedly."""
    same = (Counter(said) & Counter(meant)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(said), same / len(meant)
    return 2 * precision * recall / (precision + recall)


def best_f1(prediction: str, question: Question) -> float:
    """Best F1 over the references; 0 where too few of LV-Eval's key words were said.

    What to do stands in `question.fields`: `language`, `first_line`, `gate`, `answer_keywords`.

    Raises:
        LongsealError: the question is Chinese and jieba is not installed.
    """
    fields = question.fields
    words = WORDS[fields["language"]]
    if fields["first_line"]:
        prediction = prediction.lstrip("\n").split("\n")[0]
    said = words(prediction)
    if fields["gate"] is not None and _recall(said, question) < fields["gate"]:
        return 0.0
    return max(f1(said, words(answer)) for answer in question.expected)


def _recall(said: Sequence[str], question: Question) -> float:
    """The share of key words that were said; stop words among them count as not said.

    A Chinese item without key words is measured by its answer, an English one passes. Key words
    of which nothing is left without punctuation are no key words: LV-Eval divides by their number,
    zero, and ends there. Where nothing is left of a Chinese answer either, the F1 is 0 anyway.
    """
    language = question.fields["language"]
    keys = WORDS[language](question.fields["answer_keywords"] or "")
    if not keys and language == "zh":
        keys = WORDS[language](question.expected[0])
    if not keys:
        return 1.0
    found = Counter(said) & Counter(keys)
    return sum(n for word, n in found.items() if word not in STOP_WORDS[language]) / len(keys)
