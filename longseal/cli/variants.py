"""The adapters that a command is given, and what each is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from longseal import record
from longseal.cli.app import load_adapter
from longseal.errors import LongsealError

if TYPE_CHECKING:
    from longseal.models.load import LanguageModel

#: What would be taken for something else: the base itself, and a folded model.
_TAKEN = ("base", "folded")


class Attachable(Protocol):
    """An adapter of any kind."""

    @property
    def record(self) -> Mapping[str, Any]:
        """How it was made."""
        ...

    def check_base(self, model: LanguageModel) -> None:
        """Refuse another base."""
        ...

    def attached(self, model: LanguageModel) -> AbstractContextManager[None]:
        """Attach it inside the block."""
        ...


@dataclass(frozen=True)
class Variant:
    """An adapter by the name that it has in the results."""

    name: str
    path: Path
    adapter: Attachable

    @property
    def tasks(self) -> tuple[str, ...]:
        """What it was tuned on."""
        return record.tasks(self.adapter.record)


def load_variants(given: Sequence[str]) -> list[Variant]:
    """Load the adapters of `--adapter`, under the names that `named` gives them.

    Raises:
        LongsealError: the names will not do, or an adapter cannot be read.
    """
    return [Variant(name, path, load_adapter(path)) for name, path in named(given).items()]


def named(given: Sequence[str]) -> dict[str, Path]:
    """Folders of adapters by what they are called in the results.

    `NAME=FOLDER` says it. Else one alone is `tuned`, and several are called by their folders, as
    much of them as tells them apart: `runs/lines/adapter` is `lines`.

    Raises:
        LongsealError: a folder or a name is there twice, or is another model's.

    >>> named(["runs/lines/adapter", "both=runs/mixed/adapter"]).keys()
    dict_keys(['lines', 'both'])
    """
    split = [_split(text) for text in given]
    paths = [path for _, path in split]
    short = _short_names(paths) if len(paths) > 1 else ["tuned"] * len(paths)
    names = [name or other for (name, _), other in zip(split, short, strict=True)]
    for name in names:
        if name in _TAKEN or names.count(name) > 1:
            raise LongsealError(
                f"--adapter: {name} would be the name of two models in the results. Name every "
                "adapter once; NAME=FOLDER gives it a name of its own"
            )
    return dict(zip(names, paths, strict=True))


def _split(text: str) -> tuple[str, Path]:
    """The name, empty where none is given, and the folder."""
    name, equals, folder = text.partition("=")
    if not equals or not name or "/" in name or Path(text).exists():  # the = is the path's own
        return "", Path(text)
    return name, Path(folder)


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The fewest last parts of the paths, `adapter` left out, with which no two are alike."""
    parts = []
    for path in paths:
        *before, last = path.resolve().parts
        parts.append(tuple(before) if last == "adapter" else (*before, last))
    for count in range(1, max(map(len, parts))):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(map(str, paths))
