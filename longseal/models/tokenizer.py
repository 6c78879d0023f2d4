"""Load of a model no more than it takes to write prompts for it: no weights, no torch device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.models.context.folded import written_extension
from longseal.models.context.reach import Reaching, reached
from longseal.models.context.rope import window
from longseal.models.default import default_model
from longseal.models.load import locate, reading, stop_ids


@dataclass(frozen=True, eq=False)
class TokenizerOnly(Reaching):
    """What `Prompts` needs of a model; the names are those of `LanguageModel`.

    Attributes:
        eos_token_ids: tokens at which the model's generation settings, or its tokenizer, stop.
        window: tokens the model was made for, or would be extended to; None where it does not say.
        source: what was asked for: a hub id, a folder or a GGUF file.
        extension: what would let it reach past the window that it was made for.
    """

    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: frozenset[int]
    window: int | None
    source: str
    extension: Extension | None = None


def load_tokenizer(
    source: str | Path | None = None,
    trust_remote_code: bool = False,
    extend: str | None = None,
    force: bool = False,
) -> TokenizerOnly:
    """Load a model's tokenizer, and read its window and stop tokens from its settings.

    Args:
        source: hub id, folder or `.gguf` file; SmolLM2-135M-Instruct where it is None.
        trust_remote_code: run Python code that comes with the tokenizer.
        extend: what would let the model reach past its window, such as "ntk:4".
        force: extend a model too that scales its positions already.

    Raises:
        LongsealError: nothing usable is there, or it cannot be extended so.
    """
    source = str(source) if source is not None else str(default_model())
    place, options = locate(source)
    options["trust_remote_code"] = trust_remote_code
    with reading(source, place):
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        config = AutoConfig.from_pretrained(place, **options)
        settings = _settings(place, config, gguf="gguf_file" in options)
    reach = reached(source, config, extend, force=force)
    ends = stop_ids(settings, tokenizer)
    return TokenizerOnly(tokenizer, ends, reach.window, source, reach.extension)


def load_config(
    source: str | Path | None = None, trust_remote_code: bool = False
) -> tuple[str, PreTrainedConfig, int | None]:
    """A model's source, its settings and its own window, to choose an extension by.

    Raises:
        LongsealError: nothing usable is there, or it has an extension in its settings.
    """
    source = str(source) if source is not None else str(default_model())
    place, options = locate(source)
    written = written_extension(source)
    if written is not None and written.in_config:
        raise LongsealError(
            f"{source} has {written.extension} in its config, and reaches {written.window} tokens "
            "by that: extend the model that it was folded from"
        )
    with reading(source, place):
        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code, **options)
    return source, config, window(config)


def _settings(place: str, config: PreTrainedConfig, *, gguf: bool) -> GenerationConfig:
    """Those of generation_config.json or else, as transformers does, of config.json."""
    try:
        if gguf:
            raise OSError("a GGUF file has no generation settings beside it")
        return GenerationConfig.from_pretrained(place)
    except OSError:
        return GenerationConfig.from_model_config(config)
