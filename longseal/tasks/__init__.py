"""Retrieval formats, one file each, and the one place where text becomes tokens."""

from longseal.tasks.registry import Chosen, choose, family_of, names, one_each, task
from longseal.tasks.sample import (
    ExhaustedError,
    Family,
    Material,
    Question,
    Recorded,
    Sample,
    Task,
    Wanted,
)

__all__ = [
    "Chosen",
    "ExhaustedError",
    "Family",
    "Material",
    "Question",
    "Recorded",
    "Sample",
    "Task",
    "Wanted",
    "choose",
    "family_of",
    "names",
    "one_each",
    "task",
]
