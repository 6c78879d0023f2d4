"""The whole way through the house: evaluate, tune, evaluate, fold, reload, evaluate, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from longseal.config import RunConfig
from longseal.evaluation import Accuracy, Comparison, Evaluation, compare, evaluate
from longseal.fold import Folded, check_foldable, fold
from longseal.lora import AnyAdapter, read_adapter
from longseal.measure import peak_memory
from longseal.models.load import LanguageModel, load_alike
from longseal.progress import Bar, bars
from longseal.report import report
from longseal.run_folder import RunFolder
from longseal.tasks import Material, Task, one_each
from longseal.tasks.fitting import check_lengths, check_parts
from longseal.tasks.prompt import Prompts
from longseal.tuning import check_tuning, tune

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Outcome:
    """What a run found and where it left it.

    Attributes:
        evaluation: every case of base, tuned and folded.
        adapter: the scales that were chosen.
        folded: the checkpoint that holds them, reloaded and checked.
        folder: the run folder: `adapter/`, `model/`, `report.html`, `results.jsonl`.
    """

    evaluation: Evaluation
    adapter: AnyAdapter
    folded: Folded
    folder: RunFolder

    @property
    def accuracy(self) -> tuple[Accuracy, ...]:
        """Mean scores of base, tuned and folded, at each length."""
        return self.evaluation.accuracy()

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Whether tuned is better than base, at each length and in all."""
        base, tuned = (
            [case for case in self.evaluation.cases if case.variant == variant]
            for variant in ("base", "tuned")
        )
        return compare(base, tuned)


def run(
    model: LanguageModel,
    folder: str | Path,
    config: RunConfig | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    bar: Bar | None = None,
    **fields: Any,
) -> Outcome:
    """Do the whole job for one model, and leave everything in one folder.

    Args:
        folder: the run folder; it is made once the settings have been found good.
        config: settings; or give its fields as keywords.
        resume: go on with an interrupted run; what it has done is not done again.
        overwrite: throw an earlier run away first.
        bar: where progress is shown.

    Raises:
        LongsealError: a length is beyond the window or too short, the model's files cannot be
            folded into, or the folder is taken.
    """
    config = config or RunConfig(**fields)
    tasks = one_each(config.tuning.tasks, Material(config.data, config.haystack))
    for each in tasks:
        check_lengths(Prompts(model, config.thinking), each, config.lengths, model.window)
        check_parts(each, "test")
    check_tuning(model, tasks, config.tuning)
    check_foldable(model, config.kind)
    opened = RunFolder.open(Path(folder), model, config, resume=resume, overwrite=overwrite)
    with bars() if bar is None else nullcontext(bar) as shown:
        return _stages(model, opened, config, tasks, shown)


def _stages(
    model: LanguageModel,
    folder: RunFolder,
    config: RunConfig,
    tasks: Sequence[Task],
    bar: Bar,
) -> Outcome:
    def timed(stage: str, work: Callable[[], _Result]) -> _Result:
        started = monotonic()
        result = work()
        seconds = round(monotonic() - started, 1)
        memory = peak_memory(model.device)
        if not bar.console.is_terminal:  # no bars there: say at least what is done
            bar.console.print(f"{stage}: done in {seconds:.0f} s")
        folder.log.append(
            {"event": "stage", "stage": stage, "seconds": seconds, "peak_memory": memory}
        )
        return result

    def measured(network: LanguageModel, variant: str) -> Evaluation:
        return timed(
            f"evaluate {variant}",
            lambda: evaluate(
                network, tasks, config.evaluation, variant=variant, log=folder.log, bar=bar
            ),
        )

    def tuned() -> AnyAdapter:
        if folder.adapter.exists():
            return read_adapter(folder.adapter)
        made = tune(model, tasks, config.tuning, folder=folder.steps, log=folder.log, bar=bar)
        made.save(folder.adapter)
        return made

    def folded() -> Folded:
        if not folder.model.exists():
            fold(model, adapter, folder.model)
        made = Folded.read(folder.model)
        if not folder.log.read(event="fold"):
            values = {name: value for name, value in vars(made).items() if name != "path"}
            folder.log.append({"event": "fold", **values})
        return made

    base = measured(model, "base")
    adapter = timed("tune", tuned)
    with adapter.attached(model):
        scaled = measured(model, "tuned")
    checkpoint = timed("fold", folded)
    served = measured(load_alike(model, checkpoint.path), "folded")
    report(folder.path)
    cases = base.cases + scaled.cases + served.cases
    return Outcome(Evaluation(cases, base.excluded), adapter, checkpoint, folder)
