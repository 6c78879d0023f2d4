"""Ask a model questions at several lengths, score its answers and keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from longseal.config import EvaluateConfig
from longseal.errors import LongsealError
from longseal.evaluation.plan import Planned, check_settings, plan
from longseal.evaluation.results import Case, Evaluation, case_from, case_key
from longseal.files import Log
from longseal.models.fingerprint import fingerprint
from longseal.models.load import LanguageModel
from longseal.models.tokenizer import TokenizerOnly
from longseal.progress import Bar, bars
from longseal.scales.hooks import scaled_by
from longseal.tasks import Task
from longseal.tasks.asking import Generate, ask, generate_here
from longseal.tasks.fitting import budget, check_window
from longseal.tasks.prompt import EncodedSample, Prompts


def evaluate(
    model: LanguageModel | TokenizerOnly,
    task: Task | Sequence[Task],
    config: EvaluateConfig | None = None,
    *,
    variant: str = "base",
    log: Log | None = None,
    bar: Bar | None = None,
    run: Generate | None = None,
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

    Raises:
        LongsealError: a length is beyond the model's window, or too short for the task; or no
            task minds a setting.
    """
    tasks = [task] if isinstance(task, Task) else list(task)
    config = config or EvaluateConfig(task=tuple(t.name for t in tasks), **fields)
    if run is None:
        assert isinstance(model, LanguageModel), "something has to answer"
        run = generate_here(model)
    prompts = Prompts(model, config.thinking)
    check_settings(tasks, config)
    for each in tasks:
        check_window(each, config.lengths, model.window)
    records = [] if log is None else log.read(event="case", variant=variant)
    known = {case.key: case for case in map(case_from, records)}
    identity = _identity(model)
    cases: list[Case] = []
    excluded: dict[str, int] = {}
    with bars() if bar is None else nullcontext(bar) as shown:
        for each in tasks:
            work = shown.add_task(f"evaluate {variant}, {each.name}", total=None)
            planned = plan(each, prompts, config, model.window)
            if planned.excluded:
                excluded[each.name] = planned.excluded
            blank = [
                _blank(each, sample, config, prompts, identity, variant)
                for sample in planned.samples
            ]
            wanted = [case.key for sample in blank for case in sample]
            done = {key: known[key] for key in wanted if key in known}
            shown.update(work, total=len(wanted), completed=len(done))
            missing = [
                (sample.encoded, [(i, c) for i, c in enumerate(cases_of) if c.key not in done])
                for sample, cases_of in zip(planned.samples, blank, strict=True)
            ]
            for case in _answered(each, prompts, missing, run):
                done[case.key] = case
                if log is not None:
                    log.append({"event": "case", **asdict(case)})
                shown.update(work, advance=1)
            cases += [done[key] for key in wanted]
    if excluded and log is not None:
        log.append({"event": "excluded", "variant": variant, "excluded": excluded})
    if not cases:
        raise LongsealError("no sample fits the model's window: there is nothing to ask")
    return Evaluation(tuple(cases), excluded)


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
    prompts: Prompts,
    identity: tuple[str, str],
    variant: str,
) -> list[Case]:
    """A sample's cases before they are answered."""
    encoded, sample = planned.encoded, planned.encoded.source
    depths = prompts.depths(sample)
    cases = []
    for number, question in enumerate(sample.questions):
        tokens = encoded.prompt(number)
        prompt = sha256(repr(tokens).encode()).hexdigest()[:16]
        place = [task.name, sample.group, planned.length, planned.context, number]
        settings = {
            "place": place,
            "budget": budget(task, prompts, question),
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
                depth=depths[number],
                wanted_depth=planned.depth,
                prompt=prompt,
                expected=question.expected,
                prediction="",
                thoughts=0,
                seconds=0.0,
                metric=task.metric,
                scores={},
            )
        )
    return cases


def _identity(model: LanguageModel | TokenizerOnly) -> tuple[str, str]:
    """What tells the model, and the scales that are attached to it, from others."""
    if isinstance(model, LanguageModel):
        weights: object = sorted(asdict(fingerprint(model.network)).items())
        scales = scaled_by(model.network)
    else:  # its files: which, how large, and when they were written
        files = sorted(path for path in Path(model.source).glob("*") if path.is_file())
        weights = [model.source, *((f.name, f.stat().st_size, f.stat().st_mtime) for f in files)]
        scales = ""
    return sha256(repr(weights).encode()).hexdigest()[:16], scales
