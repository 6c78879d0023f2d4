"""How the model predicts running text, beside how the unchanged one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from longseal.errors import LongsealError
from longseal.models.arguments import vocabulary_size
from longseal.models.load import LanguageModel
from longseal.tasks.haystack import Haystack, built_in
from longseal.tasks.jsonl import read_text
from longseal.tasks.prompt import Prompts
from longseal.tuning.guard.measured import TextScore
from longseal.tuning.predictions import divergence, log_probabilities

SHORT, LONG = 256, 2048  # tokens
_SHORT_PIECES = 4  # one of 256 tokens alone says little
_LEAST = 32  # tokens: what is shorter says nothing
_PIECES = 2  # of a file: its start, and the piece in its middle
_PLACES = 1024  # of a text, spread evenly
_KEPT = 2**25  # log-probabilities kept of a text, at most: 128 MiB
_CHUNK = 2**22  # of them compared at a time


@dataclass(frozen=True)
class Text:
    """Pieces of running text, each with BOS where the tokenizer uses one."""

    name: str
    pieces: tuple[tuple[int, ...], ...]


def built_in_texts(prompts: Prompts, length: int, seed: int) -> list[Text]:
    """Built-in prose: short pieces, and one as long as `length` but at most 2,048 tokens."""
    short, long = min(length, SHORT), min(length, LONG)
    pieces = [_cut(prompts, short, f"guard/{seed}/{short}/{p}") for p in range(_SHORT_PIECES)]
    made = [Text(f"prose, {_SHORT_PIECES} x {short:,} tokens", tuple(pieces))]
    if long > short:
        made.append(Text(f"prose, {long:,} tokens", (_cut(prompts, long, f"guard/{seed}/{long}"),)))
    return made


def own_text(prompts: Prompts, path: Path, length: int) -> Text:
    """A user's file: its start and a piece from its middle.

    Raises:
        LongsealError: it cannot be read, or is too short.
    """
    size = min(length, LONG)
    tokens = prompts.tokens(read_text(path))
    if len(tokens) < _LEAST:
        raise LongsealError(
            f"{path} has {len(tokens)} tokens: name a text of at least {_LEAST}, best of some "
            "thousand"
        )
    head = tokens[: len(prompts.tokens(""))]  # BOS, or nothing
    body = tokens[len(head) :]
    room = size - len(head)
    starts = range(0, len(body), max(room, -(-len(body) // _PIECES)))
    pieces = (tuple(head + body[start : start + room]) for start in starts)
    return Text(str(path), tuple(piece for piece in pieces if len(piece) >= _LEAST))


def places(model: LanguageModel, text: Text) -> list[int]:
    """At how many places of each piece a prediction is looked at."""
    return [len(_places(model, piece, len(text.pieces))) for piece in text.pieces]


def predictions(model: LanguageModel, text: Text) -> list[Tensor]:
    """Log-probabilities at some places of each piece: `(n_places, vocabulary)`, float32, on CPU."""
    return [_log_probabilities(model, piece, len(text.pieces)).cpu() for piece in text.pieces]


def text_score(
    model: LanguageModel, text: Text, base: Sequence[Tensor], now: Sequence[Tensor] | None = None
) -> TextScore:
    """Compare what is predicted now with the base's predictions.

    Args:
        now: what is predicted now; it is run where it is not given.
    """
    loss = apart = agreeing = 0.0
    count = 0
    for number, (piece, before) in enumerate(zip(text.pieces, base, strict=True)):
        after = _log_probabilities(model, piece, len(text.pieces)) if now is None else now[number]
        labels = torch.tensor(piece)[1:][_places(model, piece, len(text.pieces))]
        rows = max(1, _CHUNK // before.shape[1])
        for then, new, label in zip(
            before.split(rows), after.split(rows), labels.split(rows), strict=True
        ):
            then, label = then.to(new.device), label.to(new.device)
            loss -= new.gather(1, label[:, None]).double().sum().item()
            apart += divergence(then, new).double().sum().item()
            agreeing += (then.argmax(-1) == new.argmax(-1)).sum().item()
            count += len(label)
    perplexity = torch.tensor(loss / count, dtype=torch.float64).exp().item()
    if not torch.tensor([perplexity, apart]).isfinite().all():
        return TextScore(text.name, count, torch.inf, torch.inf, 0.0)
    return TextScore(text.name, count, perplexity, apart / count, agreeing / count)


@torch.no_grad()
def _log_probabilities(model: LanguageModel, piece: Sequence[int], pieces: int) -> Tensor:
    """Of the token after each of its places: `(n_places, vocabulary)`, float32."""
    asked = _places(model, piece, pieces).to(model.device)
    return log_probabilities(model, torch.tensor(piece, device=model.device), asked)


def _places(model: LanguageModel, piece: Sequence[int], pieces: int) -> Tensor:
    """Where a next token is predicted, spread evenly over a piece: int64."""
    most = min(_PLACES, max(1, _KEPT // vocabulary_size(model.network))) // pieces
    count = min(len(piece) - 1, max(1, most))
    return torch.linspace(0, len(piece) - 2, count).round().long()


def _cut(prompts: Prompts, size: int, seed: str) -> tuple[int, ...]:
    """So many tokens of the built-in prose, from a paragraph that the seed draws."""
    prose = Haystack(built_in().documents[1::2])  # the others keep the model in tune (replay.py)
    text = prose.text(size, Random(seed))  # a word takes a token or more
    return tuple(prompts.tokens(text)[:size])
