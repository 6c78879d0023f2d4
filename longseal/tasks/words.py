"""Words and UUIDs that generated text is made of."""

from __future__ import annotations

from functools import cache
from random import Random
from uuid import UUID

from wonderwords import RandomWord


@cache
def dictionary(*kinds: str) -> tuple[str, ...]:
    """The `nouns`, `adjectives` or `verbs` of wonderwords, sorted."""
    words = RandomWord()
    found = (word for kind in kinds for word in words.filter(include_parts_of_speech=[kind]))
    return tuple(sorted(set(found)))


def random_uuid(random: Random) -> str:
    """A UUID of version 4."""
    return str(UUID(int=random.getrandbits(128), version=4))
