"""Read a low-rank adapter's folder, strictly: what is not as longseal writes it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.lora.low_rank import DOWN, MAGNITUDE, UP, LowRank, LowRankKind
from longseal.models.fingerprint import DTYPES, Fingerprint
from longseal.record import RECORD
from longseal.scales.reading import CONFIG, PREFIX, WEIGHTS


@dataclass(frozen=True)
class Stored:
    """What a folder holds."""

    updates: LowRank
    base: str
    fingerprint: Fingerprint
    record: dict[str, Any]


class _Record(BaseModel):
    """`longseal.json`; what tuning added is left to `model_extra`."""

    model_config = ConfigDict(extra="allow")

    kind: LowRankKind
    base: str
    modules: tuple[str, ...] = Field(min_length=1)
    base_fingerprint: Fingerprint


class _Config(BaseModel):
    """Of PEFT's `adapter_config.json`, what decides how the tensors act."""

    r: int = Field(gt=0)
    lora_alpha: int
    use_dora: bool
    fan_in_fan_out: bool
    target_modules: list[str]
    use_rslora: bool = False
    lora_bias: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, int] = {}


def read(folder: Path) -> Stored:
    """Read the folder of an adapter that `LoraAdapter.save` wrote.

    Raises:
        LongsealError: it is missing or damaged, or was not written by longseal.
    """
    for name in (CONFIG, RECORD, WEIGHTS):
        if not (folder / name).is_file():
            raise LongsealError(f"{folder} is no low-rank adapter of longseal's: it has no {name}")
    config = _read(_Config, folder / CONFIG)
    record = _read(_Record, folder / RECORD)
    known = record.base_fingerprint
    if not (known.tensors and known.dtype in DTYPES):
        raise LongsealError(f"{folder / RECORD} is damaged: its fingerprint says nothing")
    unusual = config.use_rslora or config.lora_bias or config.rank_pattern or config.alpha_pattern
    other = config.use_dora != (record.kind == "dora")
    if unusual or other or set(config.target_modules) != set(record.modules):
        raise LongsealError(
            f"{folder} is a damaged adapter: {CONFIG} is not the one that longseal wrote with it"
        )
    tensors = _tensors(folder, record, config)
    updates = LowRank(record.kind, tensors, config.r, config.lora_alpha, config.fan_in_fan_out)
    return Stored(updates, record.base, known, dict(record.model_extra or {}))


_M = TypeVar("_M", bound=BaseModel)


def _read(model: type[_M], path: Path) -> _M:
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LongsealError(f"{path} is damaged: {where}: {first['msg']}") from None


def _tensors(folder: Path, record: _Record, config: _Config) -> dict[str, Tensor]:
    """The tensors under their names in `LowRank`, in the modules' order."""
    path = folder / WEIGHTS
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise LongsealError(f"{path} cannot be read: {error}") from error
    ends = (DOWN, UP, MAGNITUDE) if record.kind == "dora" else (DOWN, UP)
    wanted = [f"{module}{end}" for module in record.modules for end in ends]
    keys = {f"{PREFIX}{name}" for name in wanted}
    if keys != stored.keys():
        name = min(keys ^ stored.keys())
        state = "is missing" if name in keys else "has no place in it"
        raise LongsealError(f"{folder} is a damaged adapter: {name} {state}")
    tensors = {name: stored[f"{PREFIX}{name}"] for name in wanted}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(tensor.float().isfinite().all()):
            raise LongsealError(f"{path} is damaged: {name} holds something but finite numbers")
    for module in record.modules:
        down, up = tensors[f"{module}{DOWN}"], tensors[f"{module}{UP}"]
        magnitude = tensors.get(f"{module}{MAGNITUDE}")
        fits = down.ndim == up.ndim == 2 and down.shape[0] == up.shape[1] == config.r
        if not fits or (magnitude is not None and magnitude.shape != up.shape[:1]):
            raise LongsealError(
                f"{folder} is a damaged adapter: {module} has shapes that do not fit each other"
            )
    return {name: tensor.float() for name, tensor in tensors.items()}
