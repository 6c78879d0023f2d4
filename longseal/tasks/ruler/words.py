"""What needles and lists are made of, each thing once."""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Literal

from longseal.tasks.words import dictionary, random_uuid

#: A key or a value: an adjective and a noun, seven digits, or a random UUID.
Kind = Literal["word", "number", "uuid"]


def distinct(draw: Callable[[], str], but: Collection[str] = ()) -> Iterator[str]:
    """What `draw` gives, each once, without those in `but`."""
    seen = set(but)
    while True:
        drawn = draw()
        if drawn not in seen:
            seen.add(drawn)
            yield drawn


def things(kind: Kind, random: Random, but: Collection[str] = ()) -> Iterator[str]:
    """Keys or values of a kind, each once, without those in `but`."""
    if kind == "number":
        return distinct(lambda: str(random.randint(10**6, 10**7 - 1)), but)
    if kind == "uuid":
        return distinct(lambda: random_uuid(random), but)
    adjectives, nouns = dictionary("adjectives"), dictionary("nouns")
    return distinct(lambda: f"{random.choice(adjectives)}-{random.choice(nouns)}", but)


def letters(random: Random, count: int, alphabet: str = string.ascii_uppercase) -> Iterator[str]:
    """Made-up words of `count` letters, each once."""
    # No variable may be called like the word before it.
    return distinct(lambda: "".join(random.choices(alphabet, k=count)), {"VAR"})
