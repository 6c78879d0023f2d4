"""The steps of a tuning run, kept as they go, so that it can be resumed and chosen from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from longseal.files import clear_errors, new_file
from longseal.tuning.learned import State

#: Optimiser states that are kept: should the newest be damaged, the one before still goes on.
_KEPT = 2


class Trajectory:
    """What was learned after every step at one training length, in memory, and in a folder if any.

    On disk a step is `step-0001.safetensors`; what the optimiser needs to go on is beside it for
    the last two, `optimiser-0001.safetensors`.

    Attributes:
        first: how many steps were made before, at other training lengths; step `first + 1` is the
            first one here.
        newest: what was learned after the last step, and what its optimiser needs to go on.
    """

    def __init__(self, folder: Path | None, first: int = 0) -> None:
        self.first = first
        self._folder = folder
        self._states: list[State] = []
        self.newest: tuple[State, Mapping[str, Tensor]] | None = None

    @property
    def last(self) -> int:
        """The step that was made last; `first` where there is none yet."""
        return self.first + len(self._states)

    def state(self, step: int) -> State:
        """What was learned after a step."""
        return self._states[step - self.first - 1]

    def keep(self, state: State, optimiser: Mapping[str, Tensor]) -> None:
        """Add the step that was just made.

        Args:
            optimiser: what it needs to make the next one.

        Raises:
            LongsealError: it cannot be written; the steps before it stay.
        """
        step = self.last + 1
        if self._folder is not None:
            _write(self._path("optimiser", step), optimiser)
            _write(self._path("step", step), state)
            self._remove("optimiser", step - _KEPT)
        self._states.append(state)
        self.newest = state, {name: tensor.clone() for name, tensor in optimiser.items()}

    def resume(self) -> None:
        """Take up the steps that the folder holds: the last that is whole, and all before it."""
        found: list[State] = []
        while (state := self._read("step", self.last + len(found) + 1)) is not None:
            found.append(state)
        while found:
            optimiser = self._read("optimiser", self.first + len(found))
            if optimiser is not None:
                self._states, self.newest = found, (found[-1], optimiser)
                return
            found.pop()

    def discard(self) -> None:
        """Forget all of it, the files as well."""
        for step in range(self.last, self.first, -1):
            self._remove("step", step)
            self._remove("optimiser", step)
        self._states, self.newest = [], None

    def _remove(self, name: str, step: int) -> None:
        if self._folder is not None:
            with clear_errors(self._folder):
                self._path(name, step).unlink(missing_ok=True)

    def _read(self, name: str, step: int) -> dict[str, Tensor] | None:
        if self._folder is None or not self._path(name, step).is_file():
            return None
        try:
            return load_file(self._path(name, step))
        except SafetensorError:
            return None

    def _path(self, name: str, step: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}-{step:04d}.safetensors"


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with new_file(path) as partial:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
