"""Whether a model is the base that scales were made for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from longseal.errors import LongsealError
from longseal.files import read_json
from longseal.models.fingerprint import Fingerprint, check, check_network
from longseal.models.load import LanguageModel
from longseal.record import RECORD, extension


def check_base(base: str, known: Fingerprint | None, model: LanguageModel) -> None:
    """Refuse a model whose weights are not those of an adapter's base.

    Args:
        base: what the adapter's base was loaded from.
        known: the base's fingerprint; None where there is nothing to check.

    Raises:
        LongsealError: it is another base, or a checkpoint into which scales of this base have been
            folded: they would be applied twice.
    """
    if _folded_from(base, known, model):
        raise LongsealError(
            f"scales are folded into this model already ({model.source}): use it as it is, or "
            "attach the adapter to the base that it was made from"
        )
    if known is not None:
        check_network(known, model.network)


def check_extension(record: Mapping[str, Any], model: LanguageModel) -> None:
    """Refuse a model that does not reach past its window by what an adapter was tuned under.

    Scales that were tuned without an extension may be tried under any.

    Args:
        record: the adapter's.

    Raises:
        LongsealError: it does not; it says how to load it.
    """
    wanted, here = extension(record), model.extension
    if wanted is not None and wanted != here:
        raise LongsealError(
            f"the adapter was tuned with --extend {wanted}, and the model is loaded "
            f"{f'with --extend {here}' if here else 'without'}: use --extend {wanted}, or "
            f"longseal.load({model.source!r}, extend={str(wanted)!r})"
        )


def same_base(first: Fingerprint | None, second: Fingerprint | None) -> bool:
    """Whether two fingerprints can be of one base; one that is not known can be of any."""
    if first is None or second is None:
        return True
    dtype = getattr(torch, second.dtype.removeprefix("torch."), None)
    try:
        check(
            first, dtype if isinstance(dtype, torch.dtype) else torch.bfloat16, second.tensors.get
        )
    except (LongsealError, ValueError):  # a tensor with another number of samples
        return False
    return True


def _folded_from(base: str, known: Fingerprint | None, model: LanguageModel) -> bool:
    """Whether a model was loaded from a folder into which scales of this base were folded.

    Its weights alone would not always tell: scales may have left the sampled ones as they were.
    """
    folder = Path(model.source).expanduser()
    if not (folder / RECORD).is_file():
        return False
    record = read_json(folder / RECORD)
    if not isinstance(record, dict) or not record.get("folded"):
        return False
    if base and Path(base).expanduser().resolve() == folder.resolve():
        return False  # tuned anew, on the folded model itself
    if known is None:
        return bool(base) and record.get("base") == base
    try:
        origin = TypeAdapter(Fingerprint).validate_python(record.get("base_fingerprint"))
    except ValidationError:  # folded before this was recorded
        return False
    return same_base(origin, known)
