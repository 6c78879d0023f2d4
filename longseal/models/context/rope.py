"""Rotary positions in a model's config: what it ships, and an extension merged into that.

Set before the network is built, so that it takes effect wherever the config is read.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from transformers import PreTrainedConfig

from longseal.config import Extension
from longseal.errors import LongsealError

#: Kinds of layers that attend to near tokens alone: their positions are never far.
_LOCAL = {"sliding_attention", "chunked_attention"}
#: Kinds that turn a position by the same angle in rows of all lengths.
_AT_ALL_LENGTHS = ("default", "linear", "llama3", "yarn", "proportional")
#: vLLM multiplies the window by a linear factor itself, but for these.
_AS_IT_STANDS = ("gemma3",)
#: What belongs to a kind of scaling, and goes with it when another takes its place.
_OF_KIND = (
    "type",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "short_factor",
    "long_factor",
)


def window(config: PreTrainedConfig) -> int | None:
    """Tokens the model's positions were made for, or None where its config does not say."""
    text = config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return max(value, _yarn_window(text))
    return None


def positions_of(config: PreTrainedConfig) -> MutableMapping[str, Any]:
    """The rotary parameters of the layers that attend to everything, as the config holds them.

    Raises:
        LongsealError: it has none, or several that longseal does not know apart.
    """
    text = config.get_text_config(decoder=True)
    given = getattr(text, "rope_parameters", None)
    if not isinstance(given, MutableMapping) or not given:
        raise LongsealError(
            f"{text.model_type} has no rotary positions, and no other kind can be extended: leave "
            "--extend out"
        )
    nested = {kind: part for kind, part in given.items() if isinstance(part, MutableMapping)}
    if not nested:
        return given
    far = [part for kind, part in nested.items() if kind not in _LOCAL]
    if len(far) != 1:
        raise LongsealError(
            f"{text.model_type} has positions of several kinds ({', '.join(nested)}), and which of "
            "them reach far is not known: leave --extend out"
        )
    return far[0]


def extend_config(config: PreTrainedConfig, extension: Extension, *, force: bool = False) -> None:
    """Merge an extension into a config, in place; Self-Extend needs nothing there.

    Everything else that the model ships stays: its base, the share of a head that is rotated, the
    positions of local layers.

    Args:
        force: extend a model too that scales its positions in another way.

    Raises:
        LongsealError: the model has no rotary positions, does not say its window, or scales its
            positions already.
    """
    text = config.get_text_config(decoder=True)
    parameters, own = positions_of(config), window(config)
    kind = str(parameters.get("rope_type", "default"))
    if own is None:
        raise LongsealError(f"{text.model_type} does not say its window: it cannot be extended")
    grouped = extension.method == "self-extend"
    fits = kind in (_AT_ALL_LENGTHS if grouped else ("default", extension.method))
    # dynamic NTK would leave rows between the length that a kind starts from and the window as is
    may_be_forced = extension.method not in ("self-extend", "dynamic") and kind != "proportional"
    if not fits and not (force and may_be_forced):
        raise LongsealError(
            f"this {text.model_type} scales its positions already ({kind}), and was trained so: "
            f"{extension} is not made for that"
            + (". --force (force=True) does it all the same" if may_be_forced else "")
        )
    if extension.method == "ntk":
        parameters["rope_theta"] = _stretched_base(text, parameters, extension.factor)
    elif not grouped:
        _scale(parameters, kind, extension, own)
    as_it_stands = any(name in text.model_type for name in _AS_IT_STANDS)
    if extension.method in ("ntk", "yarn") or (extension.method == "linear" and as_it_stands):
        text.max_position_embeddings = extension.window(own)


def rotary_width(text: PreTrainedConfig, parameters: Mapping[str, Any]) -> int:
    """Channels of a head that are rotated."""
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(width * (parameters.get("partial_rotary_factor") or 1.0))


def _stretched_base(text: PreTrainedConfig, parameters: Mapping[str, Any], factor: float) -> float:
    """`theta * factor ** (d / (d - 2))`: the slowest of d / 2 frequencies is divided by `factor`.

    Source: https://www.reddit.com/r/LocalLLaMA/comments/14lz7j5 (bloc97).
    """
    d = rotary_width(text, parameters)
    return float(parameters["rope_theta"] * factor ** (d / (d - 2)))


def _scale(parameters: MutableMapping[str, Any], kind: str, extension: Extension, own: int) -> None:
    """Let positions be scaled by transformers' own code."""
    if kind == extension.method:  # it keeps its kind, and its settings
        parameters["factor"] = float(parameters["factor"]) * extension.factor
        return
    before = parameters.get("original_max_position_embeddings") or own
    for name in _OF_KIND:
        parameters.pop(name, None)
    parameters["rope_type"] = extension.method
    # of a kind whose place is taken, `own` was reached by scaling: from `before` on that counts too
    parameters["factor"] = extension.factor * own / before
    if extension.method == "yarn":
        parameters["original_max_position_embeddings"] = before


def _yarn_window(text: PreTrainedConfig) -> int:
    """What YaRN's factor says; some models leave their window at what it was before."""
    given = getattr(text, "rope_parameters", None)
    if not isinstance(given, Mapping) or given.get("rope_type") != "yarn":
        return 0
    before, factor = given.get("original_max_position_embeddings"), given.get("factor")
    return int(before * factor) if before and factor else 0
