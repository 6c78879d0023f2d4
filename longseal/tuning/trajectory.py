"""The steps of a tuning run, kept as they go, so that it can be resumed and chosen from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from longseal.files import clear_errors, new_file
from longseal.tuning.learned import State

#: Optimiser states that are kept: should the newest be damaged, the one before still goes on.
_KEPT = 2


class Trajectory:
    """What was learned after every step at one training length, in memory, and in a folder if any.

    On disk a step is `step-0001.safetensors`; what the optimiser needs to go on is beside it for
    the last two, `optimiser-0001.safetensors`.

    Args:
        made_with: what tells these steps from others of the same numbers; it is in the files.

    Attributes:
        first: how many steps were made before, at other training lengths; step `first + 1` is the
            first one here.
    """

    def __init__(self, folder: Path | None, first: int = 0, made_with: str = "") -> None:
        self.first = first
        self._folder, self._made_with = folder, {"made_with": made_with}
        self._states: list[State] = []

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
            self._write("optimiser", step, optimiser)
            self._write("step", step, state)
            self._remove_optimiser(step - _KEPT)
        self._states.append(state)

    def resume(self) -> Mapping[str, Tensor] | None:
        """Take up the steps that the folder holds: the last that is whole, and all before it.

        Returns:
            What the optimiser needs to go on; None where there is no step.
        """
        found: list[State] = []
        while (state := self._read("step", self.last + len(found) + 1)) is not None:
            found.append(state)
        while found:
            optimiser = self._read("optimiser", self.first + len(found))
            if optimiser is not None:
                self._states = found
                for step in range(self.first, self.last - _KEPT + 1):  # a kill may have left some
                    self._remove_optimiser(step)
                return optimiser
            found.pop()
        return None

    def _remove_optimiser(self, step: int) -> None:
        """Remove one of the steps here; those of the training length before stay."""
        if self._folder is not None and step > self.first:
            with clear_errors(self._folder):
                self._path("optimiser", step).unlink(missing_ok=True)

    def _read(self, name: str, step: int) -> dict[str, Tensor] | None:
        """The tensors of a file; None where it is missing, torn, or of other steps."""
        if self._folder is None or not self._path(name, step).is_file():
            return None
        try:
            with safe_open(self._path(name, step), "pt") as file:
                if file.metadata() != self._made_with:
                    return None
                return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no dict
        except SafetensorError:
            return None

    def _write(self, name: str, step: int, tensors: Mapping[str, Tensor]) -> None:
        whole = {key: tensor.contiguous() for key, tensor in tensors.items()}
        with new_file(self._path(name, step)) as partial:
            save_file(whole, partial, metadata=self._made_with)

    def _path(self, name: str, step: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}-{step:04d}.safetensors"
