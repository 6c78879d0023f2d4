"""Read an adapter's folder, strictly: what is not as PEFT and longseal write it is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from longseal.config import ScaleKind
from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.models.fingerprint import DTYPES, Fingerprint
from longseal.models.sites import Site
from longseal.record import RECORD
from longseal.scales.scales import Scales

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
PREFIX, SUFFIX = "base_model.model.", ".ia3_l"
_WRAPPERS = {"module", "_orig_mod"}  # what DDP and torch.compile put around a module


@dataclass(frozen=True)
class Stored:
    """What a folder holds; `fingerprint` is None where PEFT alone wrote it."""

    scales: Scales
    base: str
    fingerprint: Fingerprint | None
    record: dict[str, Any]


class _Record(BaseModel):
    """`longseal.json`; what tuning added is left to `model_extra`."""

    model_config = ConfigDict(extra="allow")

    kind: ScaleKind
    base: str
    sites: tuple[Site, ...] = Field(min_length=1)
    base_fingerprint: Fingerprint | None
    heads: dict[str, list[float]]


def read(folder: Path) -> Stored:
    """Read the folder of an adapter that longseal or PEFT wrote.

    Raises:
        LongsealError: it is missing, damaged, or no IA3 adapter that scales inputs.
    """
    if not folder.is_dir():
        raise LongsealError(f"{folder} does not exist: name an adapter's folder")
    config = _config(folder)
    tensors = _tensors(folder)
    _refuse_scaled_outputs(folder, config, tensors)
    if (folder / RECORD).exists():
        return _ours(folder, tensors)
    return _plain(folder, config, tensors)


def plain_path(name: str) -> str:
    """A module's path without the names that DDP and torch.compile put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        kind = "a folded model, not an adapter" if _folded(folder) else "no adapter"
        raise LongsealError(f"{folder} is {kind}: it holds no {CONFIG}")
    config = read_json(path)
    if not isinstance(config, dict):
        raise LongsealError(f"{path} is damaged: it holds no settings")
    peft_type = config.get("peft_type")
    if peft_type != "IA3":
        raise LongsealError(
            f"{folder} is an adapter of PEFT type {peft_type}; longseal reads IA3: merge it into "
            "the base with PEFT's merge_and_unload, and use the result as the model"
        )
    return config


def _folded(folder: Path) -> bool:
    return (folder / RECORD).is_file() and (folder / "config.json").is_file()


def _tensors(folder: Path) -> dict[str, tuple[str, Tensor]]:
    """By plain module path: the path as the file has it, and the vector."""
    path = folder / WEIGHTS
    if not path.is_file():
        reason = (
            f"only {PICKLED}, a pickle, which can run code when it is read. Load it with PEFT, "
            "where you trust it, and save it anew: that writes safetensors"
            if (folder / PICKLED).is_file()
            else f"no {WEIGHTS}"
        )
        raise LongsealError(f"{folder} cannot be read as an adapter: it holds {reason}")
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise LongsealError(f"{path} cannot be read: {error}") from error
    found: dict[str, tuple[str, Tensor]] = {}
    for key, tensor in tensors.items():
        plain = plain_path(key)
        name = plain.removeprefix(PREFIX).removesuffix(SUFFIX)
        if plain != f"{PREFIX}{name}{SUFFIX}":
            raise LongsealError(f"{path} is damaged: {key} is no IA3 vector")
        if name in found:
            raise LongsealError(f"{path} is damaged: it holds {name} twice, once as {key}")
        if not tensor.is_floating_point() or not bool(tensor.float().isfinite().all()):
            raise LongsealError(f"{path} is damaged: {name} holds something but finite numbers")
        if not tensor.numel():
            raise LongsealError(f"{path} is damaged: {name} holds no number")
        found[name] = key.split(PREFIX)[-1].removesuffix(SUFFIX), tensor
    if not found:
        raise LongsealError(f"{path} is damaged: it holds no vector")
    return found


def _refuse_scaled_outputs(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, tuple[str, Tensor]]
) -> None:
    """PEFT scales the inputs of `feedforward_modules`, and the outputs of its other targets."""
    outputs = [
        name
        for name, (path, tensor) in tensors.items()
        if tensor.ndim == 2
        and (
            tensor.shape[1] == 1 < tensor.shape[0]
            or not any(_matches(config.get("feedforward_modules"), p) for p in (path, name))
        )
    ]
    if outputs:
        raise LongsealError(
            f"{folder} scales the output of {min(outputs)}, not its input "
            "(feedforward_modules): longseal scales inputs of output projections alone. Merge the "
            "adapter into the base with PEFT's merge_and_unload"
        )


def _matches(modules: object, name: str) -> bool:
    """Whether PEFT counts a module among these: a regex, or ends of names."""
    if isinstance(modules, str):
        try:
            return re.fullmatch(modules, name) is not None
        except re.error:
            return False
    ends = modules if isinstance(modules, list) else []
    return any(isinstance(end, str) and name.endswith(end) for end in ends)


def _ours(folder: Path, tensors: Mapping[str, tuple[str, Tensor]]) -> Stored:
    try:
        record = _Record.model_validate(read_json(folder / RECORD))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LongsealError(f"{folder / RECORD} is damaged: {where}: {first['msg']}") from None
    known = record.base_fingerprint
    if known is not None and not (known.tensors and known.dtype in DTYPES):
        raise LongsealError(f"{folder / RECORD} is damaged: its fingerprint says nothing")
    for site in record.sites:
        if min(site.n_heads, site.n_kv_heads, site.width) < 1 or site.input_axis not in (0, 1):
            raise LongsealError(
                f"{folder / RECORD} is damaged: {site.name} has a size that cannot be"
            )
    sites = {plain_path(site.name): site for site in record.sites}
    if len(sites) != len(record.sites):
        raise LongsealError(f"{folder / RECORD} is damaged: a site stands in it twice")
    if sites.keys() != tensors.keys():
        name = min(sites.keys() ^ tensors.keys())
        state = "is missing" if name in sites else "has no place in it"
        raise LongsealError(f"{folder} is a damaged adapter: {name} {state}")
    deltas = {
        site.name: _delta(tensors[name][1], site, record.kind, folder)
        for name, site in sites.items()
    }
    scales = Scales(record.kind, record.sites, deltas)
    return Stored(scales, record.base, record.base_fingerprint, dict(record.model_extra or {}))


def _delta(scale: Tensor, site: Site, kind: ScaleKind, folder: Path) -> Tensor:
    if scale.shape != (1, site.channels):
        raise LongsealError(
            f"{folder} is a damaged adapter: {site.name} has shape {tuple(scale.shape)}, not "
            f"(1, {site.channels})"
        )
    delta = scale.float().view(site.n_heads, site.width) - 1
    if kind == "channel":
        return delta
    if not torch.equal(delta, delta[:, :1].expand_as(delta)):
        raise LongsealError(
            f"{folder} is a damaged adapter: the channels of a head differ in {site.name}"
        )
    return delta[:, :1].clone()


def _plain(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, tuple[str, Tensor]]
) -> Stored:
    """An adapter of PEFT's own: its heads are not known, so each site counts as one head."""
    axis = 0 if config.get("fan_in_fan_out") else 1
    sites = []
    for name, (_, tensor) in tensors.items():
        if tensor.ndim != 2 or tensor.shape[0] != 1:
            raise LongsealError(
                f"{folder} is a damaged adapter: {name} has shape {tuple(tensor.shape)}, not "
                "(1, channels)"
            )
        layer = next((int(part) for part in name.split(".") if part.isdigit()), 0)
        sites.append(Site(name, layer, 1, 1, tensor.shape[1], axis))
    sites.sort(key=lambda site: (site.layer, site.name))
    deltas = {site.name: tensors[site.name][1].float() - 1 for site in sites}
    base = config.get("base_model_name_or_path")
    scales = Scales("channel", tuple(sites), deltas)
    return Stored(scales, base if isinstance(base, str) else "", None, {})
