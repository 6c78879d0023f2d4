"""Ask a model questions at several lengths, score its answers and keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from longseal.config import EvaluateConfig
from longseal.errors import LongsealError
from longseal.evaluation.identity import identity_of
from longseal.evaluation.plan import Plan, Planned, check_settings, plan
from longseal.evaluation.results import Case, Evaluation, case_from, case_key
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.models.tokenizer import TokenizerOnly
from longseal.progress import Bar, bars
from longseal.tasks import Task
from longseal.tasks.asking import Generate, ask, generate_here
from longseal.tasks.fitting import budget, check_window
from longseal.tasks.prompt import EncodedSample, Prompts

#: Turns the model into a variant for the length of a block, such as `adapter.attached(model)`.
Attach = Callable[[], AbstractContextManager[object]]


def evaluate(
    model: LanguageModel | TokenizerOnly,
    task: Task | Sequence[Task],
    config: EvaluateConfig | None = None,
    *,
    variant: str = "base",
    log: Log | None = None,
    bar: Bar | None = None,
    run: Generate | None = None,
    plans: Sequence[Plan] | None = None,
    **fields: Any,
) -> Evaluation:
    """Measure how often the model answers right, by free greedy generation.

    The same seed asks the same questions of every model with the same tokenizer.

    Args:
        model: its tokenizer alone is enough where something else answers (`run`).
        task: one or several.
        config: settings; or give its fields as keywords.
        variant: what to call the model in the results.
        log: where cases are kept; one that it holds already, of the same model, scales, settings
            and prompt, is not asked again.
        bar: where progress is shown.
        run: what answers; the model itself where it is None.
        plans: each task's samples, where they have been made already (`plan`).

    Raises:
        LongsealError: a length is beyond the model's window, or too short for the task; or no
            task minds a setting.
    """
    tasks = [task] if isinstance(task, Task) else list(task)
    config = config or EvaluateConfig(task=tuple(t.name for t in tasks), **fields)
    return evaluate_variants(
        model, tasks, config, {variant: nullcontext}, log=log, bar=bar, run=run, plans=plans
    )


def evaluate_variants(
    model: LanguageModel | TokenizerOnly,
    tasks: Sequence[Task],
    config: EvaluateConfig,
    variants: Mapping[str, Attach],
    *,
    log: Log | None = None,
    bar: Bar | None = None,
    run: Generate | None = None,
    plans: Sequence[Plan] | None = None,
) -> Evaluation:
    """Measure several variants of a model, such as its base and its adapters, on the same samples.

    Each task's samples are made once, and every variant is asked them before the next task's.

    Args:
        variants: by name, what to attach. For the rest see `evaluate`.

    Returns:
        The cases of the first variant on all tasks, then those of the next.
    """
    if run is None:
        assert isinstance(model, LanguageModel), "something has to answer"
        run = generate_here(model)
    prompts = Prompts(model, config.thinking)
    check_settings(tasks, config)
    for each in tasks:
        check_window(each, config.lengths, model.window)
    known = {} if log is None else _known(log)
    cases: dict[str, list[Case]] = {variant: [] for variant in variants}
    excluded: dict[str, int] = {}
    with bars() if bar is None else nullcontext(bar) as shown:
        for place, each in enumerate(tasks):
            work = shown.add_task(f"make samples, {each.name}", total=None)
            made = plan(each, prompts, config, model.window) if plans is None else plans[place]
            if made.excluded:
                excluded[each.name] = made.excluded
            asked = sum(len(sample.encoded.questions) for sample in made.samples)
            shown.update(work, total=asked * len(variants))
            for variant, attach in variants.items():
                shown.update(work, description=f"evaluate {variant}, {each.name}")
                with attach():
                    identity = identity_of(model)
                    blank = [
                        _blank(each, s, config, identity, variant, model.origin)
                        for s in made.samples
                    ]
                    wanted = [case.key for row in blank for case in row]
                    done = {key: known[variant, key] for key in wanted if (variant, key) in known}
                    shown.update(work, advance=len(done))
                    missing = [
                        (sample.encoded, [(i, c) for i, c in enumerate(row) if c.key not in done])
                        for sample, row in zip(made.samples, blank, strict=True)
                    ]
                    for case in _answered(each, prompts, missing, run):
                        done[case.key] = case
                        if log is not None:
                            log.append({"event": "case", **asdict(case)})
                        shown.update(work, advance=1)
                cases[variant] += [done[key] for key in wanted]
            asked_of = variant if len(variants) == 1 else f"{len(variants)} models"
            shown.update(work, description=f"evaluate {asked_of}, {each.name}")
    if excluded and log is not None:
        for variant in variants:
            log.append({"event": "excluded", "variant": variant, "excluded": excluded})
    found = tuple(case for row in cases.values() for case in row)
    if not found:
        raise LongsealError("no sample fits the model's window: there is nothing to ask")
    return Evaluation(found, excluded)


def _known(log: Log) -> dict[tuple[str, str], Case]:
    """The answers that a log holds, by variant and key."""
    cases = map(case_from, log.read(event="case"))
    return {(case.variant, case.key): case for case in cases}


def _answered(
    task: Task,
    prompts: Prompts,
    missing: Sequence[tuple[EncodedSample, Sequence[tuple[int, Case]]]],
    run: Generate,
) -> Iterator[Case]:
    """Ask what is missing of each sample, and fill in its cases as they are answered."""
    asked = [(encoded, cases) for encoded, cases in missing if cases]
    samples = [encoded.only([i for i, _ in cases]) for encoded, cases in asked]
    for answer in ask(task, prompts, samples, run):
        _, case = asked[answer.sample][1][answer.question]
        yield replace(
            case,
            prediction=answer.prediction,
            thoughts=answer.thoughts,
            seconds=round(answer.seconds, 3),
            scores=answer.scores,
        )


def _blank(
    task: Task,
    planned: Planned,
    config: EvaluateConfig,
    identity: tuple[str, str],
    variant: str,
    origin: Mapping[str, Any],
) -> list[Case]:
    """A sample's cases before they are answered."""
    encoded, sample = planned.encoded, planned.encoded.source
    cases = []
    for number, question in enumerate(sample.questions):
        tokens = encoded.prompt(number)
        prompt = sha256(repr(tokens).encode()).hexdigest()[:16]
        place = [task.name, sample.group, planned.length, planned.context, number]
        settings = {
            "place": place,
            "budget": budget(task, planned.prompts, question),
            "engine": config.engine,
            "scored": [question.expected, dict(question.fields)],  # by what, should a file change
        }
        cases.append(
            Case(
                key=case_key(*identity, task.name, settings, config.seed, prompt),
                variant=variant,
                task=task.name,
                group=sample.group,
                length=planned.length,
                seed=config.seed,
                context=planned.context,
                question=number,
                tokens=len(tokens),
                size=encoded.size,
                depth=planned.depths[number],
                wanted_depth=planned.depth,
                prompt=prompt,
                expected=question.expected,
                prediction="",
                thoughts=0,
                seconds=0.0,
                metric=task.metric,
                scores={},
                **origin,
            )
        )
    return cases
