"""What RULER's tasks share: where they are from and how an answer is scored."""

from __future__ import annotations

import re
from collections.abc import Mapping

from longseal.tasks.sample import Question, Task

_CONTROL = re.compile(r"[\x00-\x1f]")


class Ruler(Task):
    """A task of RULER.

    References are looked for anywhere in the answer, in any case. The score is the share of them
    that is found (`all`), or whether one of them is (`part`), by `metric`.
    """

    source = "RULER (NVIDIA/RULER at c3f5e3b)"
    metric = "all"

    def score(self, prediction: str, question: Question) -> Mapping[str, float]:
        """Score by string_match_all or string_match_part, as `metric` says."""
        said = _CONTROL.sub("\n", prediction.strip()).strip().lower()
        found = [reference.lower() in said for reference in question.expected]
        if self.metric == "part":
            return {"part": float(any(found))}
        return {"all": sum(found) / len(found)}


def listed(words: list[str]) -> str:
    """`a`, or `a, b, and c`, as RULER lists what it asks for.

    >>> listed(["a", "b", "c"])
    'a, b, and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
