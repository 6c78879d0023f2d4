"""Tiny random models of every causal language model that the installed transformers knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from zoo_overrides import (
    NOT_BUILT,
    OVERRIDES,
    SMALL,
    SMALL_TOWER,
    VARIANTS,
    WIDE_HEADS,
)

__all__ = ["MODEL_TYPES", "VARIANTS", "NotBuilt", "build", "config", "inputs"]

MODEL_TYPES: tuple[str, ...] = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)

#: Field names under which a config lists one kind a layer.
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types")
TOWERS = ("vision", "audio", "vq")


class NotBuilt(Exception):  # noqa: N818 - a fact about transformers, not a fault
    """The installed transformers cannot build this entry, or not run it on text."""


def config(name: str) -> PreTrainedConfig:
    """The tiny config of a model type or of a variant."""
    model_type, extra = VARIANTS.get(name, (name, {}))
    kind = CONFIG_MAPPING[model_type]
    given = _merged(OVERRIDES.get(model_type, {}), extra)
    if model_type in WIDE_HEADS:
        given.setdefault("head_dim", SMALL["head_dim"])
    made = kind(**_small(kind, given, SMALL))
    made.dtype = torch.float32
    return made


def build(name: str, seed: int = 0) -> PreTrainedModel:
    """A random model: weights of std 0.2, biases drawn at random, norms all different."""
    if name in NOT_BUILT:
        raise NotBuilt(f"{name}: {NOT_BUILT[name]}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # a few buffers are drawn at random
        made = AutoModelForCausalLM.from_config(config(name)).float().eval()
    random = torch.Generator().manual_seed(seed)
    norms = {
        id(getattr(module, "weight", None))
        for module in made.modules()
        if "Norm" in type(module).__name__
    }
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=random)
                norm = id(parameter) in norms and parameter.ndim == 1
                parameter.copy_(1 + 0.3 * noise if norm else 0.2 * noise)
    return made


def inputs(network: PreTrainedModel, seed: int = 0) -> dict[str, torch.Tensor]:
    """24 random tokens."""
    text = network.config.get_text_config()
    random = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(8, text.vocab_size, (1, 24), generator=random)}


def _small(
    kind: type[PreTrainedConfig], given: Mapping[str, Any], table: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a tiny config: the given ones, else what the table has for its fields.

    The configs inside it are made in the same way, those of towers from a table of their own.
    """
    known = {field.name for field in fields(kind)}
    made = {name: value for name, value in table.items() if name in known}
    if {"kv_lora_rank", "num_key_value_heads"} <= known:
        made["num_key_value_heads"] = made["num_attention_heads"]  # latent attention groups none
    default = _default(kind)
    made |= _kinds(default, known)
    for name, inner in kind.sub_configs.items():
        inside = getattr(default, name, None)
        if inside is None and name not in given:
            continue  # a tower that is there only on request
        inner = inner if inside is None else type(inside)
        tower = any(part in name for part in TOWERS)
        made[name] = _small(inner, given.get(name, {}), SMALL_TOWER if tower else table)
        if inner.model_type:
            made[name]["model_type"] = inner.model_type
    return made | {name: value for name, value in given.items() if name not in kind.sub_configs}


def _kinds(default: PreTrainedConfig | None, known: set[str]) -> dict[str, Any]:
    """One kind a layer, every kind twice or more: by which fields, and how many layers that takes.

    Kinds of attention take turns and kinds of MLP stand in blocks, so that all pairs occur.
    """
    listed = {name: getattr(default, name, None) or () for name in KINDS if name in known}
    orders = {name: tuple(dict.fromkeys(kinds)) for name, kinds in listed.items()}
    orders = {name: order for name, order in orders.items() if len(order) > 1}
    if not orders:
        return {}
    count = 2 * max(map(len, orders.values()))
    turns = {name: list(order) * (count // len(order)) for name, order in orders.items()}
    if "mlp_layer_types" in turns:
        turns["mlp_layer_types"].sort(key=orders["mlp_layer_types"].index)
    return turns | {name: count for name in ("num_hidden_layers", "num_layers") if name in known}


def _default(kind: type[PreTrainedConfig]) -> PreTrainedConfig | None:
    try:
        return kind()
    except Exception:  # a default that does not pass its own checks
        return None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for name, value in above.items():
        nested = isinstance(value, dict) and isinstance(made.get(name), dict)
        made[name] = _merged(made[name], value) if nested else value
    return made
