"""Retrieval formats, one file each, and the one place where text becomes tokens."""

from longseal.errors import LongsealError
from longseal.tasks.lines import Lines
from longseal.tasks.sample import Question, Sample, Task

TASKS: dict[str, type[Task]] = {Lines.name: Lines}


def task(name: str) -> Task:
    """Return the task that is called `name`.

    Raises:
        LongsealError: there is no such task.

    >>> task("lines").metric
    'last'
    """
    if name not in TASKS:
        raise LongsealError(f"there is no task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[name]()


__all__ = ["TASKS", "Question", "Sample", "Task", "task"]
