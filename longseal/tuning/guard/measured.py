"""What was measured: other formats' scores, and how text is predicted; as JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any


@dataclass(frozen=True)
class FormatScore:
    """A retrieval format's mean score, 0 to 1, by free generation.

    Attributes:
        questions: how many were asked.
        worth: what one answer, right or wrong, changes the score by; one part of an answer, where
            parts are counted.
        gained, lost: answers that score higher, and lower, than the base's.
        reworded: answers that score as the base's, in other words.
    """

    name: str
    score: float
    questions: int
    worth: float
    gained: int = 0
    lost: int = 0
    reworded: int = 0


@dataclass(frozen=True)
class TextScore:
    """How running text is predicted, each token from the true ones before it.

    Attributes:
        tokens: predicted tokens that were looked at, spread over the text.
        perplexity: infinite where a prediction is not finite.
        kl: KL(base || now), in nats a token.
        agreement: share of tokens whose most likely candidate is the base's.
    """

    name: str
    tokens: int
    perplexity: float
    kl: float = 0.0
    agreement: float = 1.0


@dataclass(frozen=True)
class Measured:
    """What the model can do with what is attached to it.

    Where its predictions are not finite no format is asked: all score 0.
    """

    formats: tuple[FormatScore, ...]
    texts: tuple[TextScore, ...]

    @property
    def finite(self) -> bool:
        """Whether every prediction was a finite number."""
        return all(isfinite(text.perplexity) and isfinite(text.kl) for text in self.texts)

    def to_json(self) -> dict[str, Any]:
        """JSON values; what is not finite, which JSON has no number for, becomes None."""
        return {
            "formats": [asdict(score) for score in self.formats],
            "texts": [
                {k: None if v in (inf, -inf) else v for k, v in asdict(score).items()}
                for score in self.texts
            ],
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Measured:
        """What `to_json` wrote."""
        return Measured(
            tuple(FormatScore(**score) for score in record["formats"]),
            tuple(_text_score(score) for score in record["texts"]),
        )


def _text_score(score: Mapping[str, Any]) -> TextScore:
    fields: dict[str, Any] = {k: inf if v is None else v for k, v in score.items()}
    return TextScore(**fields)
