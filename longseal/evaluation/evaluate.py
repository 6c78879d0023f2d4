"""Ask a model questions at several lengths, score its answers and keep them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from longseal.config import EvaluateConfig
from longseal.evaluation.results import Case, Evaluation, case_from
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.progress import Bar, bars
from longseal.tasks import Task
from longseal.tasks.asking import Answer, ask
from longseal.tasks.prompt import EncodedSample, Prompts, prompt_limit


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
    done = _done(log, variant, task.name, config.seed)
    samples: list[_Sample] = []
    for length in config.lengths:
        left, context = config.samples, 0
        while left:  # a short context may hold fewer questions than are asked for
            seed = f"test/{config.seed}/{task.name}/{length}/{context}"
            encoded = prompts.fit(task, limits[length], min(config.questions, left), seed)
            missing = [q for q in range(len(encoded.questions)) if (length, context, q) not in done]
            samples.append(_Sample(length, context, encoded, missing))
            left, context = left - len(encoded.questions), context + 1
    wanted = [
        (sample.length, sample.context, question)
        for sample in samples
        for question in range(len(sample.encoded.questions))
    ]
    asked_now = [sample for sample in samples if sample.missing]
    with bars() if bar is None else nullcontext(bar) as shown:
        work = shown.add_task(
            f"evaluate {variant}",
            completed=len(wanted) - sum(len(sample.missing) for sample in asked_now),
            total=len(wanted),
        )
        for answer in ask(model, task, prompts, [sample.to_ask for sample in asked_now]):
            sample = asked_now[answer.sample]
            case = sample.case(answer, variant, task, config.seed)
            done[case.length, case.context, case.question] = case
            if log is not None:
                log.append({"event": "case", **vars(case)})
            shown.update(work, advance=1)
    return Evaluation(tuple(done[key] for key in wanted))


@dataclass(frozen=True)
class _Sample:
    """A sample of the evaluation, and those of its questions that are still to be asked."""

    length: int
    context: int
    encoded: EncodedSample
    missing: list[int]

    @property
    def to_ask(self) -> EncodedSample:
        """The sample with its missing questions alone."""
        return self.encoded.only(self.missing)

    def case(self, answer: Answer, variant: str, task: Task, seed: int) -> Case:
        """The scored answer as a line of the results."""
        return Case(
            variant=variant,
            task=task.name,
            length=self.length,
            seed=seed,
            context=self.context,
            question=self.missing[answer.question],
            tokens=answer.tokens,
            size=self.encoded.size,
            expected=answer.expected,
            prediction=answer.prediction,
            metric=task.metric,
            scores=answer.scores,
        )


def _done(log: Log | None, variant: str, task: str, seed: int) -> dict[tuple[int, int, int], Case]:
    """The cases that the log holds, by length, context and question."""
    wanted = {"variant": variant, "task": task, "seed": seed}
    cases = map(case_from, [] if log is None else log.read(event="case", **wanted))
    return {(case.length, case.context, case.question): case for case in cases}
