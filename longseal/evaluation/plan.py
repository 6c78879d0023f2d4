"""Which samples an evaluation asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from longseal.config import EvaluateConfig
from longseal.errors import LongsealError
from longseal.tasks import Recorded, Sample, Task, Wanted
from longseal.tasks.fitting import budget, fit
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.qa import truncate_middle

_SAMPLES = 24  # questions at each length, about


@dataclass(frozen=True)
class Planned:
    """A sample of an evaluation.

    Attributes:
        length: the length that was asked for, in tokens, the answers' budget included; of a file's
            samples, the longest in their group.
        context: its number, at its length or in its file.
        depth: where the answer was meant to stand.
        prompts: what encoded it.
    """

    length: int
    context: int
    depth: float | None
    encoded: EncodedSample
    prompts: Prompts = field(repr=False, compare=False)

    @cached_property
    def depths(self) -> tuple[float | None, ...]:
        """Where each question's answer does stand; found once, however many models are asked."""
        return self.prompts.depths(self.encoded.source)


@dataclass(frozen=True)
class Plan:
    """The samples of a task, and how many of a file's questions are too long for the window."""

    samples: tuple[Planned, ...]
    excluded: int = 0


def plan(task: Task, prompts: Prompts, config: EvaluateConfig, window: int | None) -> Plan:
    """Make the samples of a task, or read them from its file.

    The same settings and tokenizer give the same samples.

    Raises:
        LongsealError: the task cannot be made so short or so long.
    """
    if isinstance(task, Recorded):
        return _recorded(task, prompts, config, window)
    make = _grid if task.depths or (config.depths and takes_depth(task)) else _contexts
    return Plan(tuple(p for length in config.lengths for p in make(task, prompts, config, length)))


def takes_depth(task: Task) -> bool:
    """Whether an answer of the task stands in one place, which can be wished for."""
    if isinstance(task, Recorded):
        return False
    return bool(task.sample(Wanted(task.smallest, depth=0.0)).questions[0].evidence)


def check_settings(tasks: Sequence[Task], config: EvaluateConfig) -> None:
    """Refuse settings that none of the tasks would mind.

    Raises:
        LongsealError: there is such a setting.
    """
    names = ", ".join(task.name for task in tasks)
    if config.depths and not any(map(takes_depth, tasks)):
        raise LongsealError(f"--depths: the answers of {names} cannot be put at a depth")
    if config.truncate is not None and not any(isinstance(task, Recorded) for task in tasks):
        raise LongsealError(f"--truncate cuts the prompts of a file, and {names} is made")


def _contexts(
    task: Task, prompts: Prompts, config: EvaluateConfig, length: int
) -> Iterator[Planned]:
    """As many contexts as it takes: a short one may hold fewer questions than are asked for."""
    left, context = config.samples or _SAMPLES, 0
    while left:
        seed = f"test/{config.seed}/{task.name}/{length}/{context}"
        encoded = fit(prompts, task, length, min(config.questions, left), seed)
        yield Planned(length, context, None, encoded, prompts)
        left, context = left - len(encoded.questions), context + 1


def _grid(task: Task, prompts: Prompts, config: EvaluateConfig, length: int) -> Iterator[Planned]:
    """One context a depth, on one haystack; then the next round, on another."""
    depths: Sequence[float] = config.depths or task.depths
    contexts = config.samples or len(depths) * max(1, round(_SAMPLES / len(depths)))
    for context in range(contexts):
        turn, place = divmod(context, len(depths))
        seed = f"test/{config.seed}/{task.name}/{length}/{turn}"
        encoded = fit(prompts, task, length, 1, seed, depth=depths[place])
        yield Planned(length, context, depths[place], encoded, prompts)


def _recorded(task: Recorded, prompts: Prompts, config: EvaluateConfig, window: int | None) -> Plan:
    """A file's samples in their order, those that do not fit the window left out and counted."""
    found: list[tuple[int, int, EncodedSample]] = []
    excluded, left = 0, config.samples
    samples = task.part(config.part)
    if config.truncate is not None:
        samples = _cut(samples, prompts, config.truncate)
    for number, sample in enumerate(samples):
        encoded = prompts.encode(sample)
        sizes = [
            len(encoded.prompt(i)) + budget(task, prompts, question)
            for i, question in enumerate(sample.questions)
        ]
        fitting = [i for i, size in enumerate(sizes) if window is None or size <= window][:left]
        excluded += sum(1 for size in sizes if window is not None and size > window)
        if left is not None:
            left -= len(fitting)
        if fitting:
            longest = max(sizes[i] for i in fitting)
            found.append((number, longest, encoded.only(fitting)))
        if left == 0:
            break
    longest_of: dict[str, int] = {}
    for _, size, encoded in found:
        group = encoded.source.group
        longest_of[group] = max(size, longest_of.get(group, 0))
    return Plan(
        tuple(
            Planned(longest_of[encoded.source.group], number, None, encoded, prompts)
            for number, _, encoded in found
        ),
        excluded,
    )


def _cut(samples: Sequence[Sample], prompts: Prompts, limit: int) -> tuple[Sample, ...]:
    """Cut longer prompts in the middle, as published; how many were is said in their group."""
    made: list[Sample] = []
    cut: Counter[str] = Counter()
    for sample in samples:
        for question in sample.questions:
            text = sample.context + question.text
            short = truncate_middle(text, limit, prompts.tokens, prompts.text)
            cut[sample.group] += short != text
            made.append(replace(sample, context=short, questions=(replace(question, text=""),)))
    total = Counter(sample.group for sample in made)
    return tuple(
        replace(s, group=f"{s.group} ({cut[s.group]} of {total[s.group]} cut to {limit})".strip())
        for s in made
    )
