"""The gradient of a step, in as much memory as there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from longseal.errors import LongsealError
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar
from longseal.tasks.loss import loss
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.learned import Learned
from longseal.tuning.memory import Plan, fitting_plan, known_plan
from longseal.tuning.replay import Replay


class Gradient:
    """Adds up the gradients of what is learned, which has to be attached already."""

    def __init__(
        self,
        model: LanguageModel,
        learned: Learned,
        replay: Replay | None,
        log: Log | None,
        bar: Bar,
    ) -> None:
        self._model, self._learned, self._replay = model, learned, replay
        self._log, self._bar = log, bar
        self._like: EncodedSample | None = None
        self._plan: Plan | None = None

    def plan_for(self, sample: EncodedSample) -> None:
        """Have memory saved as it takes for contexts like this one; it is measured when needed."""
        self._like, self._plan = sample, None

    def of(self, contexts: Sequence[EncodedSample], step: int) -> float:
        """Mean loss of the contexts (nats a token); its gradient is added to what is learned.

        So is that of the divergence on general text, where it is kept (`Replay`). Out of memory is
        tried once more, with the next way to save it.

        Raises:
            LongsealError: memory does not suffice.
        """
        plan = self._planned()
        try:
            return self._run(plan, contexts, step)
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
        smaller = plan.smaller
        if smaller is None:
            raise LongsealError(_ADVICE)
        self._plan = smaller
        self._say(smaller)
        for parameter in self._learned.parameters.values():
            parameter.grad = None
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()
        with memory_errors():
            return self._run(smaller, contexts, step)

    def _planned(self) -> Plan:
        """What a resumed run did before, as another way may round otherwise; else what fits."""
        if self._plan is None:
            assert self._like is not None
            said = [] if self._log is None else self._log.read(**self._key)
            self._plan = known_plan(self._model, said[-1]["way"]) if said else None
        if self._plan is None:
            assert self._like is not None
            self._plan = fitting_plan(self._model, self._learned, self._like)
            self._say(self._plan)
        return self._plan

    @property
    def _key(self) -> dict[str, Any]:
        assert self._like is not None
        return {"event": "memory", "tokens": self._like.tokens}

    def _run(self, plan: Plan, contexts: Sequence[EncodedSample], step: int) -> float:
        with plan.saving(self._model.network):
            values = [loss(self._model, each, backward=True) for each in contexts]
            for parameter in self._learned.parameters.values():
                if parameter.grad is not None:
                    parameter.grad /= len(contexts)
            if self._replay is not None:
                self._replay.backward(step)
        return sum(values) / len(values)

    def _say(self, plan: Plan) -> None:
        if self._log is not None:
            self._log.append({**self._key, "way": plan.way, "plan": plan.about})
        self._bar.console.print(plan.about)


_ADVICE = (
    "out of memory: what was learned so far is kept. Make room and go on with "
    "--resume; or start anew with fewer --questions, a smaller --train-length or --quantize 4bit"
)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Say in one line that memory ran out, and what to do.

    Raises:
        LongsealError: it did.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        raise LongsealError(_ADVICE) from error


def _out_of_memory(error: BaseException) -> bool:
    """Whether the device, or the system, had no memory left."""
    refused = ("out of memory", "not enough memory", "alloc")
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        r in said for r in refused
    )
