"""An extension into a folded checkpoint's config, so that engines serve it without a flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.files import read_json, write_json
from longseal.models.context.rope import extend_config, positions_of, window
from longseal.models.load import LanguageModel, locate

_CONFIG = "config.json"
#: Names that older checkpoints have for the base of their positions.
_BASES = ("rope_theta", "rotary_emb_base")
#: What transformers takes from such a name and keeps among the parameters.
_SHARES = ("partial_rotary_factor", *_BASES)


@dataclass(frozen=True)
class Positions:
    """What became of an extension.

    Attributes:
        record: what the folded checkpoint's own record says of it.
        note: what is left to the engine; None where nothing is.
    """

    record: Mapping[str, Any]
    note: str | None = None


def fold_positions(
    folder: Path, extension: Extension | None, model: LanguageModel | None
) -> Positions:
    """Write an extension into `config.json`, or say what an engine has to do in its place.

    Args:
        folder: the checkpoint as it was copied or saved.
        extension: None where there is none.
        model: the loaded base, where there is one.

    Raises:
        LongsealError: the config cannot be read, or would not say what was meant.
    """
    if extension is None:
        return Positions({"folded": True})
    trust = model is not None and model.trust_remote_code
    if model is not None and "gguf_file" in locate(model.source)[1]:
        _restore(folder, model)
    wanted = _read(folder, trust=trust)
    own = window(wanted)
    if own is None:
        raise LongsealError(f"{folder / _CONFIG} does not say the model's window any more")
    reach = extension.window(own)
    record = {"folded": True, "extend": str(extension), "window": reach}
    if not extension.in_config:
        return Positions(record | {"extend_in_config": False}, _note(extension, own, reach))
    extend_config(wanted, extension, force=True)  # when the scales were learned it was accepted
    _write(folder / _CONFIG, wanted)
    found = _read(folder, trust=trust)
    if positions_of(found) != positions_of(wanted) or window(found) != window(wanted):
        raise LongsealError(
            f"{extension} cannot be written into this model's config: nothing was written. "
            "Please report this architecture"
        )
    return Positions(record | {"extend_in_config": True})


def _note(extension: Extension, own: int, reach: int) -> str:
    """What an engine has to do that a config cannot say."""
    does = (
        f"attend by Self-Extend (group {extension.group}, {extension.neighbours} neighbours)"
        if extension.method == "self-extend"
        else f"use dynamic NTK (factor {extension.factor:g})"
    )
    return (
        f"the scales were learned under {extension}, which the folded config does not say: beyond "
        f"{own} tokens, up to {reach}, the engine has to {does}; here, --extend {extension}"
    )


def _read(folder: Path, *, trust: bool) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(str(folder), trust_remote_code=trust)
    except (OSError, ValueError, KeyError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise LongsealError(
            f"the extension cannot be written into the config, which is not read: {first}"
        ) from error
    return config


def _restore(folder: Path, model: LanguageModel) -> None:
    """What is saved from a loaded model has the extension in it: take the GGUF's own positions."""
    place, options = locate(model.source)
    _write(folder / _CONFIG, AutoConfig.from_pretrained(place, **options))


def _write(path: Path, wanted: PreTrainedConfig) -> None:
    """Give `config.json` the positions and the window of a config, in the form that it has."""
    raw = read_json(path)
    text = wanted.get_text_config(decoder=True)
    section = raw if text is wanted else _section(raw, wanted, text)
    if "max_position_embeddings" in section or hasattr(text, "max_position_embeddings"):
        section["max_position_embeddings"] = text.max_position_embeddings
    if "rope_parameters" in section:
        section["rope_parameters"] = text.rope_parameters
    far = positions_of(wanted)
    bases = [name for name in _BASES if name in section]
    for name in bases:
        section[name] = far["rope_theta"]
    if "rope_parameters" not in section:
        if not bases:
            section["rope_theta"] = far["rope_theta"]
        if far.get("rope_type", "default") != "default":
            scaling = {name: value for name, value in far.items() if name not in _SHARES}
            section["rope_scaling"] = scaling
    write_json(path, raw)


def _section(raw: dict[str, Any], whole: PreTrainedConfig, text: PreTrainedConfig) -> Any:
    """Where in the file the text model's own settings are."""
    name = next(
        (name for name in whole.sub_configs if getattr(whole, name, None) is text and name in raw),
        None,
    )
    if name is None:
        raise LongsealError("the config does not hold its text model's settings by themselves")
    return raw[name]
