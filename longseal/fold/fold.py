"""Write an adapter into a model's own weights, and check the result where asked to."""

from __future__ import annotations

import json
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any, get_args

from longseal.config import Kind, Projection
from longseal.errors import LongsealError
from longseal.files import new_folder, read_json
from longseal.fold.compare import hooked_logits, logit_difference
from longseal.fold.copying import check_space, check_target
from longseal.fold.multiply import Rounding
from longseal.fold.plan import Plan
from longseal.fold.positions import fold_positions
from longseal.fold.source import Files, files_of
from longseal.lora import AnyAdapter, LoraAdapter, LowRank, read_adapter
from longseal.models.load import LanguageModel, load
from longseal.record import RECORD, extension
from longseal.scales import Adapter, Scales
from longseal.scales.base import check_extension


@dataclass(frozen=True)
class Folded:
    """What folding gave.

    Attributes:
        path: the folded checkpoint, which loads as the base did.
        projection: what scales were folded into, the output projections or the values; None for
            low-rank updates, which are merged into every projection that they adapt.
        rounding: largest rounding error of a folded weight, relative to its tensor's largest.
        rounding_rms: root mean square of all folded weights' rounding errors, relative to that of
            the weights; None in a folder of longseal 0.1, which did not record it.
        logit_difference: largest absolute difference between the logits of the reloaded folded
            model and of the base with the adapter attached, over 128 positions; None where that was
            not checked.
        note: what is left to the engine that serves it; None where nothing is.
    """

    path: Path
    projection: Projection | None
    rounding: float
    rounding_rms: float | None
    logit_difference: float | None
    note: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Folded:
        """What folding gave that folder, from its own record.

        Raises:
            LongsealError: it is no folded checkpoint.
        """
        record = read_json(folder / RECORD)
        if not (isinstance(record, dict) and record.get("folded") and "rounding" in record):
            raise LongsealError(f"{folder} is no folded checkpoint: its {RECORD} does not say so")
        return cls(
            folder,
            record.get("projection", "output"),
            record["rounding"],
            record.get("rounding_rms"),
            record.get("logit_difference"),
            record.get("note"),
        )


def fold(
    base: str | Path | LanguageModel,
    adapter: str | Path | AnyAdapter,
    target: str | Path,
    *,
    projection: Projection = "output",
    check: bool | None = None,
) -> Folded:
    """Fold `adapter` into the weights of `base` and write the checkpoint to `target`.

    A checkpoint is folded as files: no model is loaded, few rows of one tensor are in memory at a
    time, and every byte that is not multiplied stays as it was. The model is loaded for a check,
    for an adapter without a fingerprint of its base, and for a GGUF: that is written as an ordinary
    checkpoint, in the dtype it was loaded in.

    Scales multiply the output projections; low-rank updates (`lora`, `dora`) are merged by PEFT
    into all projections that they adapt. Either is made in float32 and rounded once.

    Args:
        base: hub id, folder, `.gguf` file, or the loaded model.
        adapter: the adapter or its folder.
        target: a folder that does not exist yet; it appears when it is whole.
        projection: fold scales into the output projections, which is always exact, or into the
            values, which is refused where it would not be.
        check: reload the result and compare its logits with those of the base with the adapter
            attached; that takes both models in memory. Done where not said for a loaded `base`.

    Raises:
        LongsealError: the target exists or lies in the source, the disk is too small, the adapter
            is another base's, or the checkpoint is damaged, quantised or folded already.
    """
    if projection not in get_args(Projection):
        raise LongsealError(f"projection {projection!r} is not known: say output or value")
    adapter = read_adapter(adapter) if isinstance(adapter, str | Path) else adapter
    low_rank = isinstance(adapter, LoraAdapter)
    if low_rank and projection != "output":
        raise LongsealError(
            f"a {adapter.kind} adapter is merged into all projections that it adapts: leave "
            "--projection (projection=) out"
        )
    target = Path(target)
    check_target(target)
    model = base if isinstance(base, LanguageModel) else None
    files = files_of(str(base) if model is None else model.source)
    check_target(target, None if files is None else files.folder)
    checked = model is not None if check is None else check
    extend = extension(adapter.record)
    if model is None and (checked or files is None or adapter.base_fingerprint is None):
        # Only a model says whether an adapter of PEFT's own fits it. What was forced once is again.
        words = None if extend is None else str(extend)
        model = load(str(base), extend=words, force=extend is not None)
    if model is not None and isinstance(adapter, Adapter):
        adapter = adapter.on(model.sites)
    if model is not None:
        check_extension(adapter.record, model)
        extend = model.extension
    plan = None if files is None else Plan.of(files, adapter, projection, model)
    check_space(target, _size(model) if plan is None else plan.contents.size)
    hooked = hooked_logits(model, adapter) if checked and model is not None else None
    with new_folder(target.resolve()) as partial:
        rounding = Rounding()
        if plan is None:
            assert model is not None
            _save(model, partial)
            plan = Plan.of(Files(partial, cached=False), adapter, projection, model)
            plan.change(partial, plan.changes, rounding)
        else:
            plan.copy(partial, rounding)
        positions = fold_positions(partial, extend, model)
        (partial / RECORD).write_text(json.dumps(positions.record), "utf-8")  # for who loads it
        difference = None
        if hooked is not None and model is not None:
            difference = logit_difference(model, partial, hooked)
        folded = Folded(
            target,
            None if low_rank else projection,
            rounding.largest,
            rounding.rms,
            difference,
            positions.note,
        )
        record = json.dumps({**_record(adapter, folded), **positions.record}, indent=1) + "\n"
        (partial / RECORD).write_text(record, "utf-8")
        check_target(target)  # something may have appeared there meanwhile
    return folded


def check_foldable(model: LanguageModel, kind: Kind = "head") -> None:
    """Refuse a model into whose files no such adapter could be folded, before one is learned.

    Raises:
        LongsealError: its checkpoint is quantised, folded already, damaged, or stores a projection
            in a form that longseal does not follow.
    """
    files = files_of(model.source)
    if files is not None:
        nothing: AnyAdapter
        if kind == "lora" or kind == "dora":
            nothing = LoraAdapter.of(model, LowRank.initial(kind, model, seed=0), {})
        else:
            nothing = Adapter.of(model, Scales.zeros(kind, model.sites), {})
        Plan.of(files, nothing, "output", model)


def _save(model: LanguageModel, folder: Path) -> None:
    with redirect_stderr(StringIO()):  # its bar: saving takes a moment
        model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def _size(model: LanguageModel | None) -> int:
    """Bytes of a model's weights."""
    return 0 if model is None else sum(p.nbytes for p in model.network.parameters())


def _record(adapter: AnyAdapter, folded: Folded) -> dict[str, Any]:
    """What stands in the folded checkpoint's own `longseal.json`."""
    known = adapter.base_fingerprint
    return {
        **adapter.record,
        "folded": True,
        "kind": adapter.kind,
        "base": adapter.base,
        "projection": folded.projection,
        "rounding": folded.rounding,
        "rounding_rms": folded.rounding_rms,
        "logit_difference": folded.logit_difference,
        "note": folded.note,
        "base_fingerprint": None if known is None else asdict(known),
    }
