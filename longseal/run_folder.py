"""The folder that a run leaves behind: opened once, refused or resumed after."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from longseal.config import Settings, TaskSettings, weighted
from longseal.errors import LongsealError
from longseal.files import Log, clear_errors, read_json, write_json
from longseal.measure import session
from longseal.models.load import LanguageModel, pick_device
from longseal.models.tokenizer import TokenizerOnly

_CONFIG = "config.json"
_MADE = (_CONFIG, "results.jsonl", "report.html", "adapter", "model", "steps")


class RunFolder:
    """`config.json`, `results.jsonl`, `steps/`, `adapter/`, `model/` and `report.html`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.adapter = path / "adapter"
        self.model = path / "model"
        self.steps = path / "steps"
        self.report = path / "report.html"
        self.log = Log(path / "results.jsonl")

    @classmethod
    def open(
        cls,
        path: Path,
        model: LanguageModel | TokenizerOnly,
        config: Settings,
        *,
        resume: bool = False,
        overwrite: bool = False,
        **more: Any,
    ) -> RunFolder:
        """Make the folder, or go on with it.

        Args:
            model, config: what the results depend on; kept in `config.json`.
            resume: go on where an interrupted run of the same settings and files stopped.
            overwrite: throw an earlier run away first; other files in the folder are left alone.
            more: further JSON values that the results depend on.

        Raises:
            LongsealError: the folder is taken, is of other settings, or cannot be written.
        """
        refuse_taken(path, resume=resume, overwrite=overwrite)
        if isinstance(model, LanguageModel):
            dtype, device = str(model.network.dtype).removeprefix("torch."), model.device
            quantize = {} if model.quantize is None else {"quantize": model.quantize}
        else:  # another engine has the weights
            dtype, device, quantize = "auto", pick_device("auto"), {}
        settings = {
            "model": model.source,
            "dtype": dtype,
            **quantize,
            **model.origin,
            **more,
            **config.model_dump(mode="json"),
            **_files(config),
        }
        if overwrite:
            _clear(path)
        if (path / _CONFIG).is_file():
            _compare(path, settings)
        else:
            write_json(path / _CONFIG, settings)
        with clear_errors(path), NamedTemporaryFile(dir=path):
            folder = cls(path)
        folder.log.append(session(device))
        return folder


def refuse_taken(path: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that a run would not be allowed to write to; nothing is changed.

    Raises:
        LongsealError: it is a file, holds a run that is neither resumed nor overwritten, or holds
            something that is no run.
    """
    if path.exists() and not path.is_dir():
        raise LongsealError(f"{path} is a file: name a folder with --out")
    if not path.is_dir() or not any(path.iterdir()):
        return
    config = path / _CONFIG
    if not (config.is_file() and {"model", "task"} <= read_json(config).keys()):
        raise LongsealError(f"{path} holds files that are no run: name another folder with --out")
    if not (resume or overwrite):
        raise LongsealError(
            f"{path} holds a run already: add --resume to go on with it, --overwrite to throw it "
            "away, or name another folder with --out"
        )


def _files(config: Settings) -> dict[str, dict[str, str]]:
    """Hashes of the files that the tasks are made of: a run is of what stood in them."""
    if not isinstance(config, TaskSettings):
        return {}
    tasks = [*getattr(config, "task", ()), *getattr(config, "guard_task", ())]
    named = [Path(name) for name, _ in map(weighted, tasks) if name.endswith(".jsonl")]
    named += [*config.data, *([config.haystack] if config.haystack else [])]
    named += getattr(config, "guard_text", ())
    hashes = {}
    for path in named:
        parts = sorted(path.rglob("*")) if path.is_dir() else [path]
        texts = [sha256(part.read_bytes()).hexdigest() for part in parts if part.is_file()]
        hashes[str(path)] = sha256("".join(texts).encode()).hexdigest()[:16]
    return {"files": hashes} if hashes else {}


def _clear(path: Path) -> None:
    with clear_errors(path):
        for name in _MADE:
            made = path / name
            if made.is_dir():
                shutil.rmtree(made)
            else:
                made.unlink(missing_ok=True)


def _compare(path: Path, settings: Mapping[str, Any]) -> None:
    before = read_json(path / _CONFIG)
    if before == settings:
        return
    for name in sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise LongsealError(
                f"{path} cannot be resumed with other settings: {name} was {before.get(name)} and "
                f"is {settings.get(name)} now. Use the same settings, or another --out"
            )
