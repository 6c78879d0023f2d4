"""What the tests of LoRA and DoRA share."""

from __future__ import annotations

import tiny
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from longseal.lora import LoraAdapter
from longseal.models.load import LanguageModel
from longseal.tuning.learned import Learned, learned_of, snapshot

KINDS = ["lora", "dora"]
NAMES = ["llama", "gpt2"]
ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def logits(network: PreTrainedModel) -> Tensor:
    """Logits over a fixed row."""
    return network(input_ids=ROW).logits


def attached(model: LanguageModel, adapter: LoraAdapter) -> Tensor:
    """Logits with an adapter."""
    with adapter.attached(model):
        return logits(model.network)


def moved(learned: Learned, seed: int = 3) -> dict[str, Tensor]:
    """A state in which everything differs from the beginning."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.1 * torch.randn(value.shape, generator=random)
        for name, value in snapshot(learned).items()
    }


def adapter_of(model: LanguageModel, kind: str, seed: int = 3) -> LoraAdapter:
    """An adapter of random updates."""
    learned = learned_of(kind, model, seed=1)
    learned.set(moved(learned, seed))
    return learned.adapter(model, {"task": "lines"})


def fresh(folder: object) -> PreTrainedModel:
    """The model in a folder as transformers loads it, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def close(found: Tensor, expected: Tensor) -> None:
    """They are equal to 1e-5."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
