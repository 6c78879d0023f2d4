"""Write an adapter's scales into a model's own weights, and check the result."""

from __future__ import annotations

import json
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor

from longseal.errors import LongsealError
from longseal.files import new_folder, read_json
from longseal.fold.checkpoint import OTHER_WEIGHTS, check_base, copy_files, multiply
from longseal.models.arguments import vocabulary_size
from longseal.models.load import LanguageModel, load, load_alike
from longseal.scales import Adapter
from longseal.scales.adapter import RECORD

_PROBE_TOKENS = 128
_TOLERANCE = 0.1  # of the logits' spread; 16-bit models stay well below it


@dataclass(frozen=True)
class Folded:
    """What folding gave.

    Attributes:
        path: the folded checkpoint, which loads as the base did.
        rounding: largest rounding error of a folded weight, relative to its tensor's largest.
        logit_difference: largest absolute difference between the logits of the reloaded folded
            model and of the base with the scales attached, over 128 positions.
    """

    path: Path
    rounding: float
    logit_difference: float

    @classmethod
    def read(cls, folder: Path) -> Folded:
        """What folding gave that folder, from its own record.

        Raises:
            LongsealError: it is no folded checkpoint.
        """
        record = read_json(folder / RECORD)
        return cls(folder, record["rounding"], record["logit_difference"])


def fold(
    base: str | Path | LanguageModel, adapter: str | Path | Adapter, target: str | Path
) -> Folded:
    """Fold `adapter` into `base`, write the checkpoint to `target` and reload it for a check.

    A GGUF is written as an ordinary checkpoint, in the dtype it was loaded in.

    Args:
        base: hub id, folder, `.gguf` file, or the loaded model.
        adapter: the adapter or its folder.
        target: a folder that does not exist yet; it appears when it is whole.

    Raises:
        LongsealError: the target exists or lies in the source, or the adapter is another base's.
    """
    adapter = adapter if isinstance(adapter, Adapter) else Adapter.load(adapter)
    target = Path(target)
    model = base if isinstance(base, LanguageModel) else load(base)
    source = _files(model.source)
    check_target(target, source)
    adapter.check_sites(model.sites)
    if source is not None:
        check_base(source, adapter)
    with adapter.attached(model):
        hooked = _logits(model)
    with new_folder(target) as partial:
        if source is None:
            with redirect_stderr(StringIO()):  # its bar: saving takes a moment
                model.network.save_pretrained(partial)
            model.tokenizer.save_pretrained(partial)
            check_base(partial, adapter)
        else:
            copy_files(source, partial)
        rounding = multiply(partial, adapter.scales)
        folded = Folded(target, rounding, _difference(model, partial, hooked))
        (partial / RECORD).write_text(
            json.dumps(_record(adapter, folded), indent=1) + "\n", "utf-8"
        )
    return folded


def _difference(model: LanguageModel, folder: Path, hooked: Tensor) -> float:
    """Reload the folded checkpoint and compare its logits with the hooked model's.

    Raises:
        LongsealError: they differ by more than rounding can explain.
    """
    folded = _logits(load_alike(model, folder))
    difference = float((folded - hooked).abs().max())
    usual = float((folded - hooked).square().mean().sqrt())  # the largest grows with the vocabulary
    if not usual <= _TOLERANCE * float(hooked.std()):
        raise LongsealError(
            f"the folded model's logits differ from the tuned model's by {difference:.3g}: "
            "nothing was written. Please report this architecture"
        )
    return difference


def _record(adapter: Adapter, folded: Folded) -> dict[str, Any]:
    """What stands in the folded checkpoint's own `longseal.json`."""
    return {
        "folded": True,
        "kind": adapter.kind,
        "base": adapter.base,
        "rounding": folded.rounding,
        "logit_difference": folded.logit_difference,
        **adapter.record,
    }


def check_target(target: Path, source: Path | None = None) -> None:
    """Refuse a folder that must not be written to.

    Raises:
        LongsealError: it exists, or lies in the source.
    """
    if target.exists():
        raise LongsealError(f"{target} exists already: name a folder that does not")
    if source is not None and target.resolve().is_relative_to(source.resolve()):
        raise LongsealError(f"{target} lies inside the model that is folded: name another folder")


def _files(source: str) -> Path | None:
    """The folder that holds a model's files; None for a GGUF, which is written anew."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.suffix == ".gguf":
        return None
    try:
        return Path(snapshot_download(source, ignore_patterns=list(OTHER_WEIGHTS)))
    except OSError as error:
        raise LongsealError(f"{source} cannot be fetched whole: {error}") from error


@torch.no_grad()
def _logits(model: LanguageModel) -> Tensor:
    """Logits over a fixed row of tokens: `(128, vocabulary)`, float32."""
    vocabulary = vocabulary_size(model.network)
    tokens = [(11 + 37 * i * i) % vocabulary for i in range(_PROBE_TOKENS)]
    row = torch.tensor([tokens], device=model.device)
    logits: Tensor = model.network(input_ids=row, use_cache=False).logits
    return logits[0].float()
