"""Keep general text as the model reads it, while it learns: KL from its own predictions."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor

from longseal.config import TuneConfig
from longseal.models.load import LanguageModel
from longseal.tasks.haystack import Haystack, built_in
from longseal.tasks.prompt import Prompts
from longseal.tuning.predictions import divergence, log_probabilities

#: Pieces of prose, tokens of each, and places in it at which predictions are compared.
_PIECES, _TOKENS, _PLACES = 4, 192, 64
#: What a nat of divergence counts beside a nat of an answer's loss, usually.
WEIGHT = 4.0


class Replay:
    """A few pieces of text with the unchanged model's predictions, one of them read at each step.

    What is learned has to be attached already, and unchanged when this is made. Their divergence is
    what scales that move by noise cost most; that of the guard's texts, which are others, is lower
    for it (docs/results.md).

    Attributes:
        pieces: `(n_tokens,)` each.
        weight: what a nat of divergence counts beside a nat of an answer's loss.
    """

    def __init__(self, model: LanguageModel, prompts: Prompts, seed: int) -> None:
        self._model, self.weight = model, WEIGHT
        prose = Haystack(built_in().documents[::2])  # the guard reads the others
        self.pieces = [
            torch.tensor(prompts.tokens(prose.text(_TOKENS, Random(f"replay/{seed}/{piece}"))))
            for piece in range(_PIECES)
        ]
        most = min(_TOKENS, model.window or _TOKENS)
        self.pieces = [piece[:most].to(model.device) for piece in self.pieces]
        with torch.no_grad():
            self._base = [self._predicted(piece) for piece in self.pieces]

    def backward(self, step: int) -> None:
        """Add the gradient of KL(base || now), nats a token, on a step's piece, weighted."""
        place = step % len(self.pieces)
        base, now = self._base[place], self._predicted(self.pieces[place])
        (self.weight * divergence(base, now).sum(-1).mean()).backward()

    def _predicted(self, piece: Tensor) -> Tensor:
        """Log-probabilities at some places: `(n_places, vocabulary)`, float32."""
        places = torch.linspace(0, len(piece) - 1, min(_PLACES, len(piece)), device=piece.device)
        return log_probabilities(self._model, piece, places.round().long())


def kept_text(model: LanguageModel, prompts: Prompts, config: TuneConfig) -> Replay | None:
    """The text that steps keep; None where nobody looks at it, or in the paper's recipe."""
    keeps = config.guard is not None and config.recipe != "paper"
    return Replay(model, prompts, config.seed) if keeps else None
