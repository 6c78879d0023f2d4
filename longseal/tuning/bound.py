"""How much of what the model could do before a candidate may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from longseal.config import TuneConfig
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar
from longseal.tasks import Material, Task, choose
from longseal.tasks.prompt import Prompts
from longseal.tuning.guard import Guard, Harm, harm
from longseal.tuning.guard.measured import Measured
from longseal.tuning.held_out import put
from longseal.tuning.learned import Learned, State


def guard_of(
    model: LanguageModel,
    prompts: Prompts,
    wanted: Sequence[Task],
    config: TuneConfig,
    unchanged: Callable[[], AbstractContextManager[object]] = nullcontext,
    log: Log | None = None,
) -> Guard | None:
    """The guard that the settings ask for; None where nobody is to look.

    Args:
        unchanged: lets the model act unchanged inside the block.

    Raises:
        LongsealError: a format or text that the user names cannot be read or made.
    """
    if config.guard is None:
        return None
    return Guard(
        model,
        prompts,
        wanted=[task.name for task in wanted],
        length=max(config.length),
        unchanged=unchanged,
        tasks=choose(config.guard_task, Material()).tasks if config.guard_task else (),
        texts=config.guard_text,
        window=model.window,
        seed=config.seed,
        log=log,
    )


class Bound:
    """Holds candidates against the unchanged model on other formats and text (`--guard`).

    What is learned has to be attached already.

    Raises:
        LongsealError: a format or text that the user names cannot be read or made.
    """

    def __init__(
        self,
        model: LanguageModel,
        learned: Learned,
        prompts: Prompts,
        wanted: Sequence[Task],
        config: TuneConfig,
        log: Log | None,
        bar: Bar,
    ) -> None:
        self._learned, self._bar = learned, bar
        self._most = config.guard
        self._found: dict[tuple[int, float], Harm] = {}
        self._guard = guard_of(model, prompts, wanted, config, self._unchanged, log)
        if self._guard is None:
            return
        put(learned, None, 0.0)
        with self._shown("look at other formats and text"):
            self._base = self._guard.base()

    def harm(self, state: State | None, step: int, strength: float) -> Harm | None:
        """What a step's numbers cost at a strength; None where nobody looks."""
        if self._guard is None:
            return None
        if state is None:
            return harm(self._base, self._base)
        if (step, strength) not in self._found:
            put(self._learned, state, strength)
            with self._shown("look at other formats again"):
                now = self._guard.measure({"step": step, "strength": strength})
            self._found[step, strength] = harm(self._base, now)
        return self._found[step, strength]

    def reads(self, state: State | None, step: int, strength: float) -> bool:
        """Whether general text is read as before, which is quick to tell."""
        if self._guard is None or self._most is None or state is None:
            return True
        put(self._learned, state, strength)
        with self._shown("look at text again"):
            now = self._guard.texts_now({"step": step, "strength": strength})
        paid = harm(Measured((), self._base.texts), Measured((), now))
        return paid.within(self._most / 100)

    def allows(self, state: State | None, step: int, strength: float) -> bool:
        """Whether they cost no more than they may; formats are asked only if text is read well."""
        if not self.reads(state, step, strength):
            return False
        paid = self.harm(state, step, strength)
        return paid is None or self._most is None or paid.within(self._most / 100)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Let the model act unchanged, whatever it is set to."""
        before = {name: value.detach().clone() for name, value in self._learned.parameters.items()}
        put(self._learned, None, 0.0)
        try:
            yield
        finally:
            self._learned.set(before)

    @contextmanager
    def _shown(self, what: str) -> Iterator[None]:
        work = self._bar.add_task(what, total=1)
        yield
        self._bar.update(work, advance=1)
