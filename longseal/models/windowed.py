"""Whether a model's layers attend to all that is before a token, by its config."""

from __future__ import annotations

from transformers import PreTrainedConfig


def attends_to_everything(config: PreTrainedConfig) -> bool:
    """Not so for sliding windows, chunks and recurrent layers."""
    text = config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    windowed = getattr(text, "sliding_window", None)
    return not (windowed and getattr(text, "use_sliding_window", True))
