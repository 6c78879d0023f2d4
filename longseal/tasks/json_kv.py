"""Key-value retrieval from JSON, as in Lost in the Middle (nelson-liu/lost-in-the-middle)."""

from __future__ import annotations

from collections.abc import Mapping

from longseal.tasks.places import arranged
from longseal.tasks.sample import Family, Material, Question, Sample, Task, Wanted
from longseal.tasks.words import random_uuid

_HEADER = (
    "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n"
)
_UUID = 36  # characters


class JsonKv(Task):
    """Find the value of a key in a JSON object whose keys and values are all random UUIDs.

    A pair takes some 80 to 100 tokens, more than a twentieth of a short prompt. So that every
    length can be met, size counts tenths of a pair: what is over stands as one pair, never asked
    for, whose key and value are cut short.
    """

    name = "json-kv"
    about = "the value of a key in a JSON object of random UUIDs"
    source = "Lost in the Middle (nelson-liu/lost-in-the-middle at 04cbd0d)"
    unit = "tenths of a pair"
    max_new_tokens = 100  # the source's own budget
    metric = "contains"
    smallest = 20  # the source asks for two pairs at least

    def sample(self, wanted: Wanted) -> Sample:
        """Make the object and ask for some of its values (fewer where there are fewer pairs).

        With a depth, the first question is about the pair that stands there.
        """
        count, tenths = divmod(wanted.size, 10)
        random = wanted.random("pairs")
        pairs = [(random_uuid(random), random_uuid(random)) for _ in range(count)]
        standing = [pairs[i] for i in arranged(count, wanted)]
        if tenths:
            cut = _UUID * tenths // 10
            rest = wanted.random("rest")
            # between two others, so that the first and the last pair may hold the answer
            standing.insert(
                rest.randrange(1, count), (random_uuid(rest)[:cut], random_uuid(rest)[:cut])
            )
        lines = ",\n ".join(f'"{key}": "{value}"' for key, value in standing)
        return Sample(
            context=f"{_HEADER}{{{lines}}}\n\n",
            questions=tuple(_question(*pair) for pair in pairs[: wanted.questions]),
        )

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Score by the source's rule, the value stands somewhere (`contains`), and by `exact`.

        `exact`: nothing else stands there but quotes, white space or a full stop around it.
        """
        value, said = question.expected[0].lower(), prediction.lower()
        return {
            "contains": float(value in said),
            "exact": float(said.strip(" \t\r\n\"'`.") == value),
        }


def _question(key: str, value: str) -> Question:
    return Question(
        text=f'Key: "{key}"\nCorresponding value:',
        answer=value,
        expected=(value,),
        evidence=f'"{key}": "{value}"',
    )


def _make(variant: str, material: Material) -> Task:
    return JsonKv()


FAMILY = Family(JsonKv.name, JsonKv.about, _make, source=JsonKv.source)
