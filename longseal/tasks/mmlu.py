"""MMLU's questions from a folder of CSVs, and the 5-shot prompt as it was published."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from longseal.errors import LongsealError
from longseal.tasks.jsonl import read_text

LETTERS = "ABCD"
SHOTS = 5


@dataclass(frozen=True)
class Item:
    """A question, its four choices and the place of the right one."""

    question: str
    choices: tuple[str, ...]
    answer: int

    @property
    def letter(self) -> str:
        """The right choice's letter."""
        return LETTERS[self.answer]

    @property
    def text(self) -> str:
        """The question as it is put, up to where the letter follows."""
        listed = "".join(
            f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, self.choices, strict=True)
        )
        return f"{self.question}{listed}\nAnswer:"


@dataclass(frozen=True)
class Subject:
    """A subject's questions, and the answered ones that come first."""

    name: str
    shots: tuple[Item, ...]
    items: tuple[Item, ...]

    def prompt(self, item: Item, shots: int = SHOTS) -> str:
        """The prompt, word for word that of hendrycks/test (two spaces before the subject)."""
        about = self.name.replace("_", " ")
        head = f"The following are multiple choice questions (with answers) about  {about}.\n\n"
        answered = "".join(f"{shot.text} {shot.letter}\n\n" for shot in self.shots[:shots])
        return head + answered + item.text


def read_mmlu(folder: Path) -> list[Subject]:
    """Read `dev/SUBJECT_dev.csv` and `test/SUBJECT_test.csv`, by subject's name.

    Rows are question, four choices, answer (A to D, or 0 to 3), with a header line or without.

    Raises:
        LongsealError: files are missing, or a row is not like this.
    """
    found = sorted((folder / "test").glob("*_test.csv"))
    if not found:
        raise LongsealError(
            f"{folder} holds no MMLU: it should have dev/SUBJECT_dev.csv and test/SUBJECT_test.csv"
        )
    subjects = []
    for path in found:
        name = path.name.removesuffix("_test.csv")
        shots = _items(folder / "dev" / f"{name}_dev.csv")
        subjects.append(Subject(name, tuple(shots), tuple(_items(path))))
    return subjects


def _items(path: Path) -> list[Item]:
    made = []
    for number, row in enumerate(csv.reader(StringIO(read_text(path), newline=""))):
        if not row or (number == 0 and [row[0], row[-1]] == ["question", "answer"]):
            continue
        made.append(_item(path, number, row))
    if not made:
        raise LongsealError(f"{path} is empty: it should hold a question a line")
    return made


def _item(path: Path, number: int, row: Sequence[str]) -> Item:
    answer = row[-1].strip().upper()
    if len(row) != 2 + len(LETTERS) or len(answer) != 1 or answer not in LETTERS + "0123":
        raise LongsealError(
            f"{path}, row {number + 1}: not a question, {len(LETTERS)} choices and an answer "
            "(A to D, or 0 to 3)"
        )
    place = LETTERS.index(answer) if answer in LETTERS else int(answer)
    return Item(row[0], tuple(row[1:-1]), place)
