"""An adapter of either kind: scales, or low-rank updates."""

from __future__ import annotations

from pathlib import Path

from longseal.files import read_json
from longseal.lora.adapter import LoraAdapter
from longseal.record import RECORD
from longseal.scales import Adapter
from longseal.scales.reading import CONFIG

#: What both are: they have a `kind`, a `record`, a `note`, `check_base`, `attached` and `save`.
AnyAdapter = Adapter | LoraAdapter


def read_adapter(folder: str | Path) -> AnyAdapter:
    """Read the folder of an adapter, whatever it holds.

    Raises:
        LongsealError: it is missing, damaged, or of a type that longseal does not read.
    """
    folder = Path(folder)
    if (folder / CONFIG).is_file() and (folder / RECORD).is_file():
        config = read_json(folder / CONFIG)
        if isinstance(config, dict) and config.get("peft_type") == "LORA":
            return LoraAdapter.load(folder)
    return Adapter.load(folder)
