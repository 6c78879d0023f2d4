"""What tells one model from another in results that are kept."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from longseal.models.fingerprint import fingerprint
from longseal.models.load import LanguageModel
from longseal.models.tokenizer import TokenizerOnly
from longseal.scales.hooks import scaled_by


def identity_of(model: LanguageModel | TokenizerOnly) -> tuple[str, str]:
    """What tells a model with its extension, and the scales attached to it, from others."""
    if isinstance(model, LanguageModel):
        weights: object = sorted(asdict(fingerprint(model.network)).items())
        if model.extension is not None:
            weights = [weights, str(model.extension)]
        scales = scaled_by(model.network)
    else:  # its files: which, how large, and when they were written
        files = sorted(path for path in Path(model.source).glob("*") if path.is_file())
        weights = [model.source, *((f.name, f.stat().st_size, f.stat().st_mtime) for f in files)]
        scales = ""
    return sha256(repr(weights).encode()).hexdigest()[:16], scales
