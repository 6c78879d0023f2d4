"""Whether an extension takes effect: a network turns by the angles of the formula."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.models.context.rope import positions_of, rotary_width
from longseal.models.context.rotary import find_rotary


def check_takes_effect(
    network: PreTrainedModel, config: PreTrainedConfig, extension: Extension, window: int
) -> None:
    """Refuse a network that was built from an extended config and turns by other angles.

    Args:
        config: the extended one, whatever the network holds.
        window: tokens of the longest row, for kinds that depend on it.

    Raises:
        LongsealError: so it is, or its angles cannot be seen.
    """
    name, device = type(network).__name__, network.device
    wanted = _wanted(config, window).to(device)
    rotaries = find_rotary(network)
    found = [rotary.frequencies(window, device) for rotary in rotaries]
    for rotary in rotaries:
        rotary.frequencies(2, device)  # dynamic NTK would go on with those of a long row
    if not found:
        raise LongsealError(
            f"{extension} cannot be used with {name}: the angles that it turns queries and keys by "
            "cannot be seen"
        )
    same = [f.shape == wanted.shape and torch.allclose(f, wanted, rtol=1e-4) for f in found]
    if not any(same):
        raise LongsealError(
            f"{extension} would not take effect in {name}: it was set in the config, and queries "
            "and keys are turned by other angles"
        )


def _wanted(config: PreTrainedConfig, length: int) -> Tensor:
    """Radians a position, by the config's own kind of positions: `(pairs,)`, fastest first."""
    text, parameters = config.get_text_config(decoder=True), positions_of(config)
    kind = str(parameters.get("rope_type", "default"))
    if kind == "default":
        d = rotary_width(text, parameters)
        powers = torch.arange(0, d, 2, dtype=torch.float64) / d
        return (float(parameters["rope_theta"]) ** -powers).float()
    nested = text.rope_parameters.items()
    layers = next((name for name, part in nested if part is parameters), None)
    make = ROPE_INIT_FUNCTIONS[kind]
    found: Tensor = make(text, torch.device("cpu"), seq_len=length, layer_type=layers)[0]
    ordered: Tensor = found.unique().flip(0)
    return ordered
