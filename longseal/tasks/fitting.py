"""Samples of a wanted length: at most that many tokens, the answer's budget included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from longseal.config import Part
from longseal.errors import LongsealError
from longseal.tasks.prompt import EncodedSample, Prompts
from longseal.tasks.sample import LEAST, ExhaustedError, Question, Recorded, Task, Wanted


def budget(task: Task, prompts: Prompts, question: Question | None = None) -> int:
    """Tokens that are kept for an answer, thoughts included; a question may have its own."""
    own = {} if question is None else question.fields
    return int(own.get("max_new_tokens", task.max_new_tokens)) + prompts.thinking


def fit(
    prompts: Prompts,
    task: Task,
    length: int,
    questions: int,
    seed: str,
    *,
    depth: float | None = None,
    training: bool = False,
) -> EncodedSample:
    """Make the largest sample whose prompts have at most `length` tokens, answers included.

    RULER counts lengths so too. What is made has at least 95% of the length.

    Args:
        questions: at most so many; a short context may hold fewer.
        seed: the same seed gives the same sample.
        depth: where the first question's answer should stand.
        training: a sample to tune on.

    Raises:
        LongsealError: no sample of the task is so short, or its material does not reach so far.
    """
    limit = length - budget(task, prompts)
    wanted = Wanted(task.smallest, questions, seed, depth, training, prompts.count)
    ends: ExhaustedError | None = None

    def draw(size: int, every: bool = False) -> EncodedSample | None:
        """The sample, as its first question alone sees it unless `every`."""
        nonlocal ends
        try:
            sample = task.sample(replace(wanted, size=size))
        except ExhaustedError as error:
            ends = error
            return None
        if not every:
            sample = replace(sample, questions=sample.questions[:1])
        return prompts.encode(sample, size)

    def tokens(size: int) -> int:
        made = draw(size)
        return limit + length if made is None else made.length

    smallest = tokens(task.smallest)
    if smallest > limit:
        if ends is not None:
            raise ends
        raise LongsealError(
            f"length {length} is too short for the task {task.name}: the shortest sample takes "
            f"{smallest + length - limit} tokens of this model's tokenizer, "
            f"{length - limit} of them for the answer"
        )
    low, at = task.smallest, smallest  # the largest size that is known to fit, and its tokens
    high, over = 0, 0  # the smallest that is known not to; 0 until there is one
    per_unit = 0.0
    while not high or high - low > 1:
        if low > task.smallest:
            per_unit = (at - smallest) / (low - task.smallest)
            if limit - at < per_unit:
                break
        if high:
            guess = low + int((high - low) * (limit - at) / (over - at))
            guess = min(max(guess, low + 1), high - 1)
        else:
            guess = low + max(1, int((limit - at) / (per_unit or 64)))
        found = tokens(guess)
        if found > limit:
            high, over = guess, found
        else:
            low, at = guess, found
    made = draw(low, every=True)
    while made is None or made.length > limit:  # some questions are longer than the first
        low -= max(1, int((made.length - limit) / per_unit)) if made and per_unit else 1
        if low < task.smallest:
            raise LongsealError(
                f"length {length} is too short for {questions} questions of the task {task.name}"
            )
        made = draw(low, every=True)
    if ends is not None and made.length + length - limit < LEAST * length:
        raise ends
    return made


def check_window(task: Task, lengths: Iterable[int], window: int | None) -> None:
    """Refuse lengths beyond the model's window.

    Raises:
        LongsealError: a length is; a file's samples have lengths of their own.
    """
    if window is None or isinstance(task, Recorded):
        return
    for length in lengths:
        if length > window:
            raise LongsealError(
                f"length {length} is beyond the model's window of {window} tokens: ask for less, "
                f"or see longseal extend MODEL --to {length}"
            )


def check_parts(task: Task, *parts: Part) -> None:
    """Refuse a file that is too short to be parted, before any work is done.

    Raises:
        LongsealError: it has nothing for one of the parts.
    """
    if isinstance(task, Recorded):
        for part in parts:
            task.part(part)


def check_lengths(prompts: Prompts, task: Task, lengths: Iterable[int], window: int | None) -> None:
    """Refuse lengths that cannot be measured, before any work is done.

    Raises:
        LongsealError: a length is beyond the window, or too short for the task's shortest sample.
    """
    lengths = list(lengths)
    check_window(task, lengths, window)
    if not isinstance(task, Recorded):
        for length in lengths:
            fit(prompts, task, length, 1, "check")
