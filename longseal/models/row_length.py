"""Whether a model encodes positions alike in rows of different lengths.

LongRoPE has two sets of frequencies, one for rows beyond the length it was first trained on;
dynamic NTK has another for each length beyond the window. Keys of a row that is rotated by one set
are of no use to a row that is rotated by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel


def same_positions(network: PreTrainedModel, shortest: int, longest: int) -> int | None:
    """The set of frequencies that serves all rows of `shortest` to `longest` tokens, by number.

    Rows of one number may share keys and passes. None where the set changes between these lengths:
    such a row can only be run by itself. Always 0 for the usual encodings.
    """
    number = 0
    for kind, limit in _limits(network):
        if shortest <= limit < longest or ("dynamic" in kind and longest > limit):
            return None
        number = 2 * number + (shortest > limit)
    return number


@torch.no_grad()
def forget_lengths(network: PreTrainedModel) -> None:
    """Run one token, so that dynamic NTK does not go on with the frequencies of a longer row."""
    if any("dynamic" in kind for kind, _ in _limits(network)):
        token = torch.zeros(1, 1, dtype=torch.long, device=network.device)
        network.base_model(input_ids=token)  # what watches the head is not to take it for a step


@torch.no_grad()
def hold_frequencies(network: PreTrainedModel, prompt: int, longest: int) -> bool:
    """Let dynamic NTK turn a row by one set of frequencies, from its first token to its last.

    Else keys that are kept would have been turned by the set of a shorter row, as transformers has
    it: it takes another for each length. LongRoPE's two sets are left to it.

    Args:
        prompt, longest: tokens of the row before and after it is continued.

    Returns:
        Whether keys may be kept. Not while a row grows out of the window, up to which it has the
        model's own set: each of its passes has to be a whole one then.
    """
    forget_lengths(network)
    limits = [limit for kind, limit in _limits(network) if "dynamic" in kind]
    if any(prompt <= limit < longest for limit in limits):
        return False
    if any(prompt > limit for limit in limits):
        last = torch.full((1, 1), longest - 1, device=network.device)
        network(input_ids=torch.zeros_like(last), position_ids=last, use_cache=False)
    return True


def _limits(network: PreTrainedModel) -> Iterator[tuple[str, int]]:
    """Each encoding that depends on the length, and the length beyond which it changes."""
    config = network.config.get_text_config(decoder=True)
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(given, Mapping):
        return
    nested: list[Any] = [part for part in given.values() if isinstance(part, Mapping)]
    for part in nested or [given]:  # one for each kind of layer, or one for all
        kind = str(part.get("rope_type", part.get("type")))
        window = getattr(config, "max_position_embeddings", None)
        if kind == "longrope":
            before = part.get("original_max_position_embeddings")
            window = before or getattr(config, "original_max_position_embeddings", window)
        elif "dynamic" not in kind:
            continue
        if window:
            yield kind, int(window)
