"""Frequent words: the most frequent of coded words whose frequencies follow Zipf's law."""

from __future__ import annotations

import math
import string
from itertools import count, islice, takewhile

from longseal.tasks.ruler.scoring import Ruler, listed
from longseal.tasks.ruler.words import letters
from longseal.tasks.sample import Question, Sample, Wanted

_HEAD = (
    "Read the following coded text and track the frequency of each coded word. "
    "Find the three most frequently appeared coded words. "
)
_ASK = (
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. "
    "What are the three most frequently appeared words in the above coded text?"
)
_PREFIX = (
    " Answer: According to the coded text above, the three most frequently appeared words are:"
)
_LETTERS = 6
_ZETA = math.pi**2 / 6  # of alpha, 2


class FrequentWords(Ruler):
    """Name the three most frequent of made-up words; dots are more frequent still, as noise.

    The word of rank k stands there `size / (zeta(2) * k**2)` times, rounded down. RULER limits
    ranks to a fiftieth of the length in tokens, which is more than those that appear at all.
    """

    name = "ruler/fwe"
    about = "the three most frequent words of a coded text"
    unit = "coded words"
    max_new_tokens = 50
    smallest = 53  # from here on, the word of rank four is more frequent than the next

    def sample(self, wanted: Wanted) -> Sample:
        """Make the text and ask for its words."""
        ranked = (int(wanted.size * (rank**-2.0) / _ZETA) for rank in count(1))
        counts = list(takewhile(bool, ranked))
        coded = letters(wanted.random("words"), _LETTERS, string.ascii_lowercase)
        words = ["...", *islice(coded, len(counts) - 1)]
        text = [word for word, times in zip(words, counts, strict=True) for _ in range(times)]
        wanted.random("order").shuffle(text)
        frequent = words[1:4]
        return Sample(
            context=_HEAD + " ".join(text),
            questions=(Question(_ASK, f" {listed(frequent)}.", tuple(frequent), prefix=_PREFIX),),
        )
