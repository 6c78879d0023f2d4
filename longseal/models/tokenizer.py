"""Load of a model no more than it takes to write prompts for it: no weights, no torch device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HFValidationError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from longseal.errors import LongsealError
from longseal.models.default import default_model
from longseal.models.load import explain, locate, quiet, window


@dataclass(frozen=True, eq=False)
class TokenizerOnly:
    """What `Prompts` needs of a model; the names are those of `LanguageModel`.

    Attributes:
        eos_token_ids: tokens at which the model's generation settings, or its tokenizer, stop.
        window: tokens the model was made for, or None where it does not say.
        source: what was asked for: a hub id, a folder or a GGUF file.
    """

    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: frozenset[int]
    window: int | None
    source: str


def load_tokenizer(
    source: str | Path | None = None, trust_remote_code: bool = False
) -> TokenizerOnly:
    """Load a model's tokenizer, and read its window and stop tokens from its settings.

    Args:
        source: hub id, folder or `.gguf` file; SmolLM2-135M-Instruct where it is None.
        trust_remote_code: run Python code that comes with the tokenizer.

    Raises:
        LongsealError: nothing usable is there.
    """
    source = str(source) if source is not None else str(default_model())
    place, options = locate(source)
    options["trust_remote_code"] = trust_remote_code
    local = Path(place).exists()
    with quiet(local=local):
        try:
            if not local:
                hf_hub_download(place, "config.json")  # one clear refusal before anything else
            tokenizer = AutoTokenizer.from_pretrained(place, **options)
            config = AutoConfig.from_pretrained(place, **options)
        except (
            OSError,
            ValueError,
            HFValidationError,
            ImportError,
            KeyError,
            RuntimeError,
        ) as error:
            raise LongsealError(explain(source, error)) from error
        stops = _stops(place, config, gguf="gguf_file" in options)
    if tokenizer.eos_token_id is not None:
        stops = stops | {tokenizer.eos_token_id}
    network: Any = SimpleNamespace(config=config)
    return TokenizerOnly(tokenizer, stops, window(network), source)


def _stops(place: str, config: PreTrainedConfig, *, gguf: bool) -> frozenset[int]:
    """The stop tokens of generation_config.json or else, as transformers does, of config.json."""
    try:
        if gguf:
            raise OSError("a GGUF file has no generation settings beside it")
        settings = GenerationConfig.from_pretrained(place)
    except OSError:
        settings = GenerationConfig.from_model_config(config)
    eos = settings.eos_token_id
    return frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
