"""Greedy answers by transformers' own `generate`, for models that packed rows do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from longseal.models.arguments import vocabulary_size
from longseal.models.quiet import quiet
from longseal.models.rounding import alike


def continue_rows(
    network: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    stop: frozenset[int],
    *,
    keep: bool = True,
) -> list[list[int]]:
    """New tokens of each prompt, stop tokens left out; prompts are padded on the left.

    Args:
        keep: keys and values from pass to pass; else every pass is a whole one.
    """
    settings = _greedy(max_new_tokens, sorted(stop), use_cache=keep)
    tokens, mask = _padded(prompts, min(stop), network.device)
    said = _run(network, tokens, mask, settings)[:, tokens.shape[1] :]
    return [_until(row, stop) for row in said.tolist()]


#: Which prompts a network answers together as it does alone: of any length, of one, or none.
Together = Literal["any", "equal", "none"]
_TOGETHER: WeakKeyDictionary[PreTrainedModel, Together] = WeakKeyDictionary()


def runs_together(network: PreTrainedModel) -> Together:
    """Which prompts may stand in one batch; tried out once for each network.

    Padding shows in recurrent models whose state it goes into, and in attention to the best k
    tokens, where ties fall another way (in rows longer than k, too long to try). RWKV's rows mix
    their states in transformers.
    """
    if network not in _TOGETHER:
        config = network.config.get_text_config(decoder=True)
        found: Together = "none"
        if not getattr(config, "index_topk", None) and _tried(network, 9, 23):
            found = "any"
        elif _tried(network, 9, 9):
            found = "equal"
        _TOGETHER[network] = found
    return _TOGETHER[network]


def _tried(network: PreTrainedModel, one: int, other: int) -> bool:
    """Whether a prompt of `one` token count is continued as alone beside one of `other`."""
    vocabulary = vocabulary_size(network)
    prompts = [
        [(7 + 13 * i * i) % vocabulary for i in range(start, start + count)]
        for start, count in ((0, one), (20, other))
    ]
    settings = _greedy(2, None, output_logits=True, return_dict_in_generate=True)

    def logits(*prompts: Sequence[int]) -> Tensor:
        """Of the first prompt, at two steps: `(2, vocabulary)`."""
        found = _run(network, *_padded(prompts, vocabulary - 1, network.device), settings).logits
        return torch.stack([step[0] for step in found])

    try:
        return alike(network, logits(*prompts), logits(prompts[0]))
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return False


def _greedy(max_new_tokens: int, ends: list[int] | None, **more: bool) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends,
        pad_token_id=ends[0] if ends else 0,
        **{"use_cache": True, **more},
    )


def _padded(
    prompts: Sequence[Sequence[int]], filler: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Tokens and mask: `(n_prompts, longest)` int64 each."""
    longest = max(map(len, prompts))
    rows = [[filler] * (longest - len(prompt)) + [*prompt] for prompt in prompts]
    masks = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(rows, device=device), torch.tensor(masks, device=device)


def _run(network: PreTrainedModel, tokens: Tensor, mask: Tensor, settings: GenerationConfig) -> Any:
    generate: Any = network.generate
    # `generate` would warn of rows beyond the window that dynamic NTK starts from
    with torch.no_grad(), _own_settings(network, settings), quiet():
        return generate(input_ids=tokens, attention_mask=mask, generation_config=settings)


def _until(tokens: list[int], stop: frozenset[int]) -> list[int]:
    end = next((i for i, token in enumerate(tokens) if token in stop), len(tokens))
    return tokens[:end]


@contextmanager
def _own_settings(network: PreTrainedModel, settings: GenerationConfig) -> Iterator[None]:
    """`generate` fills what we leave unset from the model's own settings, so hide those."""
    theirs = network.generation_config
    network.generation_config = settings
    try:
        yield
    finally:
        network.generation_config = theirs
