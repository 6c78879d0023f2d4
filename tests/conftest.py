"""Models that many tests look at; whoever changes one puts it back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import longseal

torch.set_num_threads(1)

CONFIGS = {
    "llama": tiny.LLAMA,
    "other": tiny.LLAMA,  # the same shapes, other weights
    "untied": tiny.UNTIED,
    "gpt2": tiny.GPT2,
    "mistral": tiny.MISTRAL,
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model by name; several shards each."""

    @cache
    def made(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name) / name
        seed = 1 if name == "other" else 0
        return tiny.save(folder, CONFIGS[name], seed=seed, shard="20KB")

    return made


@pytest.fixture(scope="session")
def loaded(checkpoint: Callable[[str], Path]) -> Callable[[str], longseal.LanguageModel]:
    """A tiny model by name, loaded from disk."""
    return cache(lambda name: longseal.load(checkpoint(name), device="cpu"))


@pytest.fixture(scope="session")
def llama(loaded: Callable[[str], longseal.LanguageModel]) -> longseal.LanguageModel:
    return loaded("llama")


@pytest.fixture(scope="session")
def plain(checkpoint: Callable[[str], Path]) -> Callable[[str], PreTrainedModel]:
    """The same weights as transformers loads them, untouched by longseal."""

    @cache
    def network(name: str) -> PreTrainedModel:
        return AutoModelForCausalLM.from_pretrained(checkpoint(name), attn_implementation="eager")

    return network
