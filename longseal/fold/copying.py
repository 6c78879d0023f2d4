"""Copy a checkpoint's folder as it is, and refuse beforehand what cannot be copied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from longseal.errors import LongsealError

#: Weights in other formats would be left unfolded, so they are left behind.
OTHER_WEIGHTS = (
    "*.bin",
    "*.bin.index.json",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.onnx",
    "*.h5",
    "*.msgpack",
)


@dataclass(frozen=True)
class Contents:
    """What of a folder is copied.

    Attributes:
        files, folders: paths relative to it.
        size: bytes of these files.
    """

    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    size: int


def contents(folder: Path, shards: Collection[str]) -> Contents:
    """List what is copied: everything but hidden files and weights that would stay unfolded.

    Args:
        shards: the checkpoint's files; other safetensors at the folder's top are left behind.

    Raises:
        LongsealError: something in it is neither a file nor a folder.
    """
    files, folders = [], []
    for path in _walk(folder, (folder.resolve(),)):
        name = path.relative_to(folder)
        if path.is_dir():
            folders.append(name)
        elif path.parent == folder and path.suffix == ".safetensors" and path.name not in shards:
            continue
        elif not any(fnmatch(path.name, pattern) for pattern in OTHER_WEIGHTS):
            files.append(name)
    size = sum((folder / name).stat().st_size for name in files)
    return Contents(tuple(files), tuple(folders), size)


def _walk(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """What lies in a folder, at every depth, folders before what they hold; links are followed."""
    try:
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise LongsealError(f"{folder} cannot be read: {error.strerror}") from error
    for path in inside:
        if path.is_dir() and path.resolve() not in above:
            yield path
            yield from _walk(path, (*above, path.resolve()))
        elif path.is_file():
            yield path
        else:
            raise LongsealError(
                f"{path} cannot be copied: it is neither a file nor a folder (a link that leads "
                "nowhere, or back?). Move it away or mend it"
            )


def check_target(target: Path, source: Path | None = None) -> None:
    """Refuse a folder that must not be written to.

    Raises:
        LongsealError: it exists, or lies in the source, or the source where it would be written.
    """
    if os.path.lexists(target):
        raise LongsealError(f"{target} exists already: name a folder that does not")
    if source is None:
        return
    whole, base = target.resolve(), source.resolve()
    if whole.is_relative_to(base):
        raise LongsealError(f"{target} lies inside the model that is folded: name another folder")
    if base.is_relative_to(whole.with_name(f".{whole.name}.partial")):
        raise LongsealError(f"{source} lies where {target} would be written: name another folder")


def check_space(target: Path, size: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        LongsealError: fewer than `size` bytes are free.
    """
    there = target.resolve()
    while not there.exists():
        there = there.parent
    try:
        free = shutil.disk_usage(there).free
    except OSError:  # a file system that does not say: writing will
        return
    if free < size:
        raise LongsealError(
            f"{target} cannot be written: it needs {size / 1e9:.2f} GB and {free / 1e9:.2f} GB "
            "are free there. Make room or name a folder elsewhere"
        )


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's bytes; links are followed.

    The kernel copies, and file systems that can (XFS, btrfs) share the blocks instead, which
    takes no time; what changes after is written to blocks of its own.
    """
    with source.open("rb") as read, target.open("wb") as write:
        left = os.fstat(read.fileno()).st_size
        try:
            while left and (copied := os.copy_file_range(read.fileno(), write.fileno(), left)):
                left -= copied
        except (AttributeError, OSError):  # not Linux; two file systems on an old kernel
            pass
    if left:
        shutil.copyfile(source, target)
