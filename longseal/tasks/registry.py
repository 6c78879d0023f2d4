"""Tasks by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longseal.errors import LongsealError
from longseal.tasks import code, json_kv, lines, needle, qa, ruler
from longseal.tasks.haystack import read_haystack
from longseal.tasks.own.file import read_task_file
from longseal.tasks.own.task import OwnTask
from longseal.tasks.sample import Family, Material, NoMaterialError, Task

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (lines, needle, ruler, qa, json_kv, code)
}


@dataclass(frozen=True)
class Chosen:
    """Tasks that were asked for.

    Attributes:
        left_out: names that a whole family was meant to hold, and why each is not there.
    """

    tasks: tuple[Task, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def task(
    name: str, *, data: Path | Sequence[Path] = (), haystack: str | Path | None = None
) -> Task:
    """Return the task that is called `name`.

    Args:
        name: such as `lines`, `ruler/vt`, or a task file that `longseal generate` made.
        data: files that the task reads its samples, or their material, from.
        haystack: a text file or a folder of them, in the place of the built-in prose.

    Raises:
        LongsealError: there is no such task, it lacks a file, is given one that it does not take,
            or the name stands for several.

    >>> task("lines").metric
    'last'
    """
    files = (data,) if isinstance(data, str | Path) else tuple(data)
    haystack = None if haystack is None else Path(haystack)
    return one_each([name], Material(tuple(map(Path, files)), haystack))[0]


def one_each(names: Sequence[str], material: Material) -> tuple[Task, ...]:
    """One task for each name, in their order.

    Raises:
        LongsealError: as `choose`, or a name stands for several, or is there twice.
    """
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        raise LongsealError(f"{twin} is named twice: name it once, with one weight")
    for name in names:
        family, variant = _find(name)
        if family.whole and not variant:
            known = ", ".join(f"{family.name}/{variant}" for variant in family.variants)
            raise LongsealError(f"{name} stands for several tasks: choose one of {known}")
    return choose(names, material).tasks


def choose(names: Sequence[str], material: Material) -> Chosen:
    """The tasks of these names, whole families one by one.

    Raises:
        LongsealError: a task does not exist, lacks a file that it needs, or is there twice; or a
            file is given that none of them takes.
    """
    made: list[Task] = []
    left_out: dict[str, str] = {}
    found = [_find(name) for name in dict.fromkeys(names)]
    _check_taken([family for family, _ in found], material)
    for family, variant in found:
        if variant or not family.whole:
            made.append(_make(family, variant, material))
            continue
        for each in family.variants:
            try:
                made.append(_make(family, each, material))
            except NoMaterialError as error:
                left_out[f"{family.name}/{each}"] = str(error)
    called = [each.name for each in made]
    twin = next((name for name in called if called.count(name) > 1), None)
    if twin is not None:  # their results could not be told apart
        raise LongsealError(
            f"two of {', '.join(names)} are the task {twin}: name it once, and give task files "
            "names of their own"
        )
    return Chosen(tuple(made), left_out)


def names() -> Iterator[tuple[str, str]]:
    """Every name that `task` takes, and what each asks."""
    for family in FAMILIES.values():
        if not family.whole:
            yield family.name, family.about
        for variant, about in family.variants.items():
            yield f"{family.name}/{variant}", about


def family_of(name: str) -> Family:
    """The family that a task belongs to.

    Raises:
        LongsealError: there is no such task.
    """
    return _find(name)[0]


def _find(name: str) -> tuple[Family, str]:
    if name.endswith(".jsonl"):
        return _own(Path(name)), ""
    start, _, variant = name.partition("/")
    family = FAMILIES.get(start)
    if family is None or (variant and variant not in family.variants):
        known = FAMILIES if family is None else [f"{start}/{v}" for v in family.variants]
        raise LongsealError(
            f"there is no task {name!r}: choose from {', '.join(known)} "
            "(longseal tasks says what they are), or name a task file (.jsonl)"
        )
    return family, variant


def _check_taken(families: Sequence[Family], material: Material) -> None:
    """Refuse files that no task would read: what is found would not be of them."""
    for flag, given in (("--data", material.data), ("--haystack", material.haystack)):
        if given and not any(flag in family.takes for family in families):
            names = ", ".join(dict.fromkeys(family.name for family in families))
            raise LongsealError(f"{flag}: {names} takes no such file, it would be left unread")


def _own(path: Path) -> Family:
    """A task file as a family of one."""

    def made(variant: str, material: Material) -> Task:
        return read_task_file(path, read_haystack(material.haystack))

    return Family(path.stem, OwnTask.about, made, takes="--haystack: text that prose is taken from")


def _make(family: Family, variant: str, material: Material) -> Task:
    return family.make(variant or next(iter(family.variants), ""), material)
