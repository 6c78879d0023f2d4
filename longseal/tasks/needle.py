"""Needle in a Haystack (gkamradt/needle-in-a-haystack, version 2.0.0): facts hidden in prose."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import Any

from longseal.errors import LongsealError
from longseal.tasks import needles
from longseal.tasks.haystack import Haystack, read_haystack, sentence_ends, unit_ends
from longseal.tasks.needles import Needle
from longseal.tasks.sample import Family, Material, Question, Sample, Task, Wanted

_WORDS_A_NEEDLE = 40  # of haystack, at least: or else a short sample were needles all over
_NEAR = 0.015  # of the context: a sentence's end so near to the wanted depth is taken
_PIECE = 1000  # characters that are counted at a time


@dataclass(frozen=True)
class _Variant:
    """What is hidden.

    Attributes:
        tested, tuned: draw a needle to evaluate, and one to tune on.
        sentences: how many a needle has.
        max_new_tokens: 50 as in the tests of local models (Retrieval_Head, DuoAttention); 128, as
            RULER gives its needles, where the answer is a UUID or several things.
    """

    about: str
    tested: Callable[[Random], Needle]
    tuned: Callable[[Random], Needle]
    sentences: int = 1
    max_new_tokens: int = 50


_VARIANTS = {
    "single": _Variant(
        "the published sentence about San Francisco, hidden in prose",
        needles.single,
        needles.other_single,
    ),
    "multi": _Variant(
        "the three published pizza ingredients, spread over prose; scores the share found",
        needles.multi,
        needles.other_multi,
        sentences=3,
        max_new_tokens=128,
    ),
    "uuid": _Variant(
        "a secret code, drawn anew for each seed, hidden in prose",
        needles.code,
        needles.other_code,
        max_new_tokens=128,
    ),
}


class NeedleTask(Task):
    """Find what a sentence says that stands somewhere in a haystack, on another subject.

    Evaluations hide the published needle; tuning hides others, several in one haystack. The same
    seed gives the same haystack at all depths, so that their prompts begin alike.
    """

    about = "a fact that is hidden somewhere in prose, at every depth"
    source = "needle-in-a-haystack 2.0.0 (gkamradt/needle-in-a-haystack at 0977690)"
    unit = "words of haystack"
    metric = "substring"
    smallest = 50
    depths = tuple(i / 10 for i in range(11))

    def __init__(self, variant: str, haystack: Haystack) -> None:
        self.name = f"needle/{variant}"
        self._variant = _VARIANTS[variant]
        self.max_new_tokens = self._variant.max_new_tokens
        self._haystack = haystack

    def sample(self, wanted: Wanted) -> Sample:
        """Hide the needle (to tune on, up to `wanted.questions` of them) at the wanted depth.

        Depths that are not asked for are random. The sentences of one needle are spread from its
        depth to the end, evenly, as upstream spreads them.

        Raises:
            LongsealError: the user's haystack holds the needle already.
        """
        parts = self._variant.sentences
        most = max(1, wanted.size // (_WORDS_A_NEEDLE * parts))
        hidden = self._needles(wanted, most)
        text = self._haystack.text(wanted.size, wanted.random("haystack"))
        random = wanted.random("depths")
        places = []
        for number, needle in enumerate(hidden):
            drawn = random.random()
            first = drawn if number or wanted.depth is None else wanted.depth
            for part, sentence in enumerate(needle.sentences):
                if sentence in text:
                    raise LongsealError(
                        f"{self._haystack.name} holds the needle already: {sentence}"
                    )
                places.append((first + part * (1 - first) / parts, sentence))
        return Sample(hide(text, places, wanted.count), tuple(map(_question, hidden)))

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Score by upstream's rule (`substring`), and by ROUGE-1 recall (`rouge1`) beside it.

        `substring`: the share of the expected phrases that stand in the prediction, whatever their
        case. `rouge1`: the share of the whole sentence's words that do, a mean where there are
        several (Retrieval_Head at c729a0e calls more than 0.5 right).
        """
        said = prediction.lower()
        found = [phrase.strip().lower() in said for phrase in question.expected]
        recalls = [
            _rouge().score(s, prediction)["rouge1"].recall for s in question.fields["needle"]
        ]
        return {
            "substring": sum(found) / len(found),
            "rouge1": sum(recalls) / len(recalls),
        }

    def _needles(self, wanted: Wanted, most: int) -> list[Needle]:
        """The needle to evaluate; to tune on, at most so many, whose questions all differ."""
        random = wanted.random("needles")
        if not wanted.training:
            return [self._variant.tested(random)]
        found: dict[str, Needle] = {}
        while len(found) < min(wanted.questions, most):
            needle = self._variant.tuned(random)
            found.setdefault(needle.question, needle)
        return list(found.values())


def hide(text: str, places: Iterable[tuple[float, str]], count: Callable[[str], int]) -> str:
    """Put sentences into a text at depths: 0 its start, 1 its end, measured in tokens.

    A sentence's depth is the share of all other tokens, hidden ones too, that stand before it. It
    goes to the sentence's end nearest to there, or to the nearest word's where that is too far.

    Args:
        places: depths and sentences.
        count: tokens of a text.
    """
    ruler = _Ruler(text, count)
    ends = [0, *sentence_ends(text), len(text)]
    words = [0, *unit_ends(text)]
    left = [(depth, sentence, count(f" {sentence}")) for depth, sentence in sorted(places)]
    total = ruler.total + sum(length for _, _, length in left)
    pieces, done, before = [], 0, 0
    while left:
        depth, sentence, length = left[0]
        wanted = depth * (total - length) - before
        if wanted > ruler.total and len(left) > 1:  # what comes behind is longer than the text left
            _, sentence, length = left.pop(1)
            wanted -= length
        else:
            left.pop(0)
        at = ruler.nearest(ends, wanted)
        if abs(ruler.at(at) - wanted) > _NEAR * total:
            at = ruler.nearest(words, wanted)
        pieces += [text[done:at], sentence]
        done, before = max(done, at), before + length
    return _spaced([*pieces, text[done:]])


class _Ruler:
    """Where each character of a text stands in tokens, found without counting all of it each time.

    Counts of pieces are added up: a few tokens more or less than the whole has, evenly spread.
    """

    def __init__(self, text: str, count: Callable[[str], int]) -> None:
        self._text, self._count = text, count
        self._starts, self._sums = [0], [0]
        ends = unit_ends(text)
        while (start := self._starts[-1]) < len(text):
            place = bisect_left(ends, start + _PIECE)
            end = ends[place] if place < len(ends) else len(text)
            self._starts.append(end)
            self._sums.append(self._sums[-1] + _counted(count, text[start:end]))
        self.total = self._sums[-1]

    def at(self, place: int) -> int:
        """Tokens before a character."""
        piece = max(0, bisect_left(self._starts, place) - 1)
        start = self._starts[piece]
        return self._sums[piece] + (self._count(self._text[start:place]) if place > start else 0)

    def nearest(self, places: Sequence[int], tokens: float) -> int:
        """Which of the ascending places has nearest to so many tokens before it."""
        right = bisect_left(places, tokens, key=self.at)
        return min(places[max(0, right - 1) : right + 1], key=lambda p: abs(self.at(p) - tokens))


@lru_cache(maxsize=4096)  # samples of other sizes and depths have the same pieces
def _counted(count: Callable[[str], int], text: str) -> int:
    return count(text)


def _spaced(pieces: Iterable[str]) -> str:
    """The pieces in a row, with a space between two where neither has one."""
    joined = ""
    for piece in filter(None, pieces):
        apart = not joined or joined[-1].isspace() or piece[0].isspace()
        joined += piece if apart else f" {piece}"
    return joined


def _question(needle: Needle) -> Question:
    return Question(
        text=f"\n\n{needle.question}",
        answer=needle.answer,
        expected=needle.expected,
        evidence=needle.sentences[0],
        fields={"needle": list(needle.sentences)},
    )


@cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # seconds to import: only where it is used

    return RougeScorer(["rouge1"], use_stemmer=True)


def _make(variant: str, material: Material) -> Task:
    return NeedleTask(variant, read_haystack(material.haystack))


FAMILY = Family(
    "needle",
    NeedleTask.about,
    _make,
    variants={name: variant.about for name, variant in _VARIANTS.items()},
    source=NeedleTask.source,
    takes="--haystack: text to hide needles in [default: essays of this project]",
)
