"""What needles and lists are made of, each thing once."""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterator
from functools import cache
from random import Random
from typing import Literal
from uuid import UUID

from wonderwords import RandomWord

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
        return distinct(lambda: str(UUID(int=random.getrandbits(128), version=4)), but)
    adjectives, nouns = dictionary("adjectives"), dictionary("nouns")
    return distinct(lambda: f"{random.choice(adjectives)}-{random.choice(nouns)}", but)


def letters(random: Random, count: int, alphabet: str = string.ascii_uppercase) -> Iterator[str]:
    """Made-up words of `count` letters, each once."""
    # No variable may be called like the word before it.
    return distinct(lambda: "".join(random.choices(alphabet, k=count)), {"VAR"})


@cache
def dictionary(*kinds: str) -> tuple[str, ...]:
    """The `nouns`, `adjectives` or `verbs` of wonderwords, sorted."""
    words = RandomWord()
    found = (word for kind in kinds for word in words.filter(include_parts_of_speech=[kind]))
    return tuple(sorted(set(found)))
