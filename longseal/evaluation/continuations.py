"""How likely given continuations are, of prompts that share a context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longseal.models.arguments import last_logits
from longseal.models.load import LanguageModel
from longseal.models.packed_row import PackedRow, Segment
from longseal.models.row_length import forget_lengths, same_positions
from longseal.models.shared_context import (
    logits_of,
    packed_attention,
    packed_pass,
    shares_context,
)


@dataclass(frozen=True)
class Continued:
    """What follows a context: a question and a continuation, which is its last `count` tokens."""

    tokens: tuple[int, ...]
    count: int


def log_likelihoods(
    model: LanguageModel, context: Sequence[int], asked: Sequence[Continued]
) -> list[float]:
    """Log-probability of each continuation, in nats, summed over its tokens.

    The context is run once for all where the model allows it. Continuations that differ in their
    last token alone are read off one place.

    Args:
        context: at least one token, and each question at least one more.
    """
    most = max(each.count for each in asked)
    blocks = dict.fromkeys(each.tokens[:-1] for each in asked)
    found = dict(zip(blocks, _last(model, context, list(blocks), most), strict=True))
    return [_summed(found[each.tokens[:-1]], each) for each in asked]


def _summed(log_probabilities: Tensor, each: Continued) -> float:
    """Args: log_probabilities: `(at least count, vocabulary)`, the last ones the continuation's."""
    labels = torch.tensor(each.tokens[-each.count :], device=log_probabilities.device)
    return log_probabilities[-each.count :].gather(1, labels[:, None]).sum().item()


@torch.no_grad()
def _last(
    model: LanguageModel, context: Sequence[int], blocks: Sequence[tuple[int, ...]], count: int
) -> Iterator[Tensor]:
    """Log-probabilities after the last `count` tokens (or all) of each block, float32."""
    network = model.network
    longest = len(context) + max(map(len, blocks))
    if shares_context(network) and same_positions(network, len(context), longest) is not None:
        row = PackedRow.of(context, blocks, model.device)
        sizes = [min(count, len(block)) for block in blocks]
        places = torch.cat(
            [
                torch.arange(end - size + 1, end + 1)
                for end, size in zip(row.ends.tolist(), sizes, strict=True)
            ]
        ).to(model.device)
        segment = Segment(row.layout, row.tokens.shape[1])
        with packed_attention(network), packed_pass(segment):
            logits = logits_of(network, row.tokens, row.positions, places)
        yield from logits.float().log_softmax(-1).split(sizes)
        return
    for block in blocks:
        forget_lengths(network)
        tokens = torch.tensor([[*context, *block]], device=model.device)
        keep = last_logits(network, count)
        logits = network(input_ids=tokens, **keep, use_cache=False).logits[0, -count:]
        yield logits.float().log_softmax(-1)
