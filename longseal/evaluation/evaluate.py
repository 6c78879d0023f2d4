"""Ask a model questions at several lengths, score its answers and keep them."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

from longseal.config import EvaluateConfig
from longseal.evaluation.results import Case, Evaluation, case_from
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar, bars
from longseal.tasks import Task
from longseal.tasks.asking import ask
from longseal.tasks.prompt import Prompts, prompt_limit


def evaluate(
    model: LanguageModel,
    task: Task,
    config: EvaluateConfig | None = None,
    *,
    variant: str = "base",
    log: Log | None = None,
    bar: Bar | None = None,
    **fields: Any,
) -> Evaluation:
    """Measure how often the model answers right, by free greedy generation.

    The same seed asks the same questions of every model with the same tokenizer.

    Args:
        config: settings; or give its fields as keywords.
        variant: what to call the model in the results.
        log: where cases are kept; those it holds already are not asked again.
        bar: where progress is shown.

    Raises:
        LongsealError: a length is beyond the model's window, or too short for the task.
    """
    config = config or EvaluateConfig(task=task.name, **fields)
    prompts = Prompts(model)
    limits = {length: prompt_limit(length, model.window, task) for length in config.lengths}
    done = _done(log, variant, config)
    cases: list[Case] = []
    with bars() if bar is None else nullcontext(bar) as shown:
        work = shown.add_task(f"evaluate {variant}", total=config.samples * len(config.lengths))
        for length, (context, asked) in product(config.lengths, enumerate(_contexts(config))):
            found = [c for q in range(asked) if (c := done.get((length, context, q)))]
            if len(found) < asked:
                seed = f"test/{config.seed}/{task.name}/{length}/{context}"
                encoded = prompts.fit(task, limits[length], asked, seed)
                found = [
                    Case(
                        variant=variant,
                        task=task.name,
                        length=length,
                        seed=config.seed,
                        context=context,
                        size=encoded.size,
                        metric=task.metric,
                        **vars(answer),
                    )
                    for answer in ask(model, task, prompts, encoded)
                ]
                for case in found:
                    if log is not None and (length, context, case.question) not in done:
                        log.append({"event": "case", **vars(case)})
            cases += found
            shown.update(work, advance=asked)
    return Evaluation(tuple(cases))


def _contexts(config: EvaluateConfig) -> list[int]:
    """How many questions each context of a length carries."""
    whole, rest = divmod(config.samples, config.questions)
    return [config.questions] * whole + [rest] * bool(rest)


def _done(
    log: Log | None, variant: str, config: EvaluateConfig
) -> dict[tuple[int, int, int], Case]:
    wanted = {"variant": variant, "task": config.task, "seed": config.seed}
    records = [] if log is None else log.read(event="case", **wanted)
    cases = map(case_from, records)
    return {(case.length, case.context, case.question): case for case in cases}
