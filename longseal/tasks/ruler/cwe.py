"""Common words: those that a long numbered list repeats most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from longseal.tasks.ruler.scoring import Ruler
from longseal.tasks.ruler.words import distinct, things
from longseal.tasks.sample import LEAST, Question, Sample, Wanted
from longseal.tasks.words import dictionary

_HEAD = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n"
)
_ASK = "\nQuestion: What are the 10 most common words in the above list?"
_PREFIX = " Answer: The top 10 words that appear most often in the list are:"
_COMMON = 10


@dataclass(frozen=True)
class _Counts:
    """How often common and other words stand in a list."""

    common: int
    other: int

    def others(self, entries: int) -> int:
        """Other words that fill a list."""
        return (entries - _COMMON * self.common) // self.other


@dataclass(frozen=True)
class _Setting:
    """How the list and the example before it are made."""

    counts: _Counts
    shot: _Counts
    shot_others: int

    @property
    def shot_entries(self) -> int:
        return _COMMON * self.shot.common + self.shot_others * self.shot.other

    @property
    def smallest(self) -> int:
        """Entries of both, with as many other words in the list as common ones."""
        return self.shot_entries + _COMMON * (self.counts.common + self.counts.other)


#: RULER's below 4096 tokens, and from there on.
_SHORT = _Setting(_Counts(6, 1), _Counts(3, 1), 10)
_LONG = _Setting(_Counts(30, 3), _Counts(10, 3), 30)
_LONG_FROM = 4096


class CommonWords(Ruler):
    """Name the ten words that a list repeats most, after an example with its answer.

    Beyond wonderwords' 8,000 words, other words are pairs of an adjective and a noun (RULER has
    another dictionary there).
    """

    name = "ruler/cwe"
    about = "the ten most common words of a long numbered list"
    unit = "numbered words"
    max_new_tokens = 120
    smallest = _SHORT.smallest

    def sample(self, wanted: Wanted) -> Sample:
        """Make the example and the list, which have `wanted.size` entries together."""
        if wanted.size >= _LONG_FROM:  # an entry has at least a token
            return _make(wanted, _LONG)
        made = _make(wanted, _SHORT)
        tokens = wanted.count(made.context + _ASK + _PREFIX) + self.max_new_tokens
        if wanted.size < _LONG.smallest or tokens < LEAST * _LONG_FROM:
            return made
        return _make(wanted, _LONG)


def _make(wanted: Wanted, setting: _Setting) -> Sample:
    shot, shot_common = _list(wanted, "example", setting.shot, setting.shot_others)
    others = setting.counts.others(wanted.size - setting.shot_entries)
    text, common = _list(wanted, "list", setting.counts, others)
    example = f"{_HEAD}{shot}{_ASK}{_PREFIX} {_numbered(shot_common)}\n"
    answer = f" {_numbered(common)}"
    return Sample(
        context=example + _HEAD + text,
        questions=(Question(_ASK, answer, tuple(common), prefix=_PREFIX),),
    )


def _list(wanted: Wanted, purpose: str, counts: _Counts, others: int) -> tuple[str, list[str]]:
    """A shuffled list, and its common words."""
    words = list(islice(_words(wanted, purpose), _COMMON + others))
    common, other = words[:_COMMON], words[_COMMON:]
    entries = common * counts.common + other * counts.other
    wanted.random(f"{purpose}/order").shuffle(entries)
    return _numbered(entries), common


def _words(wanted: Wanted, purpose: str) -> Iterator[str]:
    """Words without end, each once: the first ones are the same for every size."""
    known = dictionary("nouns", "adjectives", "verbs")
    random = wanted.random(purpose)
    yield from islice(distinct(lambda: random.choice(known)), len(known))
    yield from things("word", random, known)


def _numbered(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))
