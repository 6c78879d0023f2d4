"""What generation is asked, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Prompted(Protocol):
    """A context and what follows it in each prompt: prompt i is `context + questions[i]`."""

    @property
    def context(self) -> Sequence[int]:
        """Tokens that all prompts begin with."""
        ...

    @property
    def questions(self) -> Sequence[Sequence[int]]:
        """What is left of each prompt, at least one token."""
        ...


@dataclass(frozen=True)
class Continuation:
    """The new tokens of one prompt, without the stop token.

    Attributes:
        seconds: what it took: of each pass an even share among the answers that grew in it, and of
            its context's pass an even share among the questions.
    """

    sample: int
    question: int
    tokens: list[int]
    seconds: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A sample with its place among all, and the tokens that each question may be answered with."""

    index: int
    context: tuple[int, ...]
    questions: tuple[tuple[int, ...], ...]
    budgets: tuple[int, ...]

    @property
    def room(self) -> int:
        """Tokens that its row may grow to."""
        return len(self.context) + sum(map(len, self.questions)) + sum(self.budgets)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return len(self.context) + max(map(len, self.questions))

    def prompt(self, question: int) -> tuple[int, ...]:
        """All tokens of a prompt."""
        return self.context + self.questions[question]
