"""Text to tokens: the one place where a template is applied and a boundary is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from longseal.errors import LongsealError
from longseal.models.load import LanguageModel
from longseal.tasks.sample import Question, Sample, Task


@dataclass(frozen=True)
class EncodedSample:
    """A sample as the model reads it: prompt i is `context + questions[i]`, token for token.

    Attributes:
        context: tokens that all prompts of the sample begin with.
        questions: what is left of each prompt, at least one token, generation prompt included.
        answers: each training answer, ending with the end-of-turn token.
        source: the sample that was encoded.
        size: units (lines ...) in the context.
    """

    context: tuple[int, ...]
    questions: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]
    source: Sample
    size: int = 0

    def only(self, questions: Iterable[int]) -> EncodedSample:
        """The sample with these of its questions alone, in this order."""
        wanted = list(questions)
        return replace(
            self,
            questions=tuple(self.questions[i] for i in wanted),
            answers=tuple(self.answers[i] for i in wanted),
            source=replace(self.source, questions=tuple(self.source.questions[i] for i in wanted)),
        )

    @property
    def length(self) -> int:
        """Tokens of the longest prompt, template included."""
        return len(self.context) + max(map(len, self.questions))

    @property
    def tokens(self) -> int:
        """Tokens of the context and of all questions with their answers."""
        return sum(map(len, (self.context, *self.questions, *self.answers)))


def prompt_limit(length: int, window: int | None, task: Task) -> int:
    """Tokens that a prompt of `length` may have: all of them, unless the answer needs the room.

    Raises:
        LongsealError: the length is beyond the window.
    """
    if window is None:
        return length
    if length > window:
        raise LongsealError(
            f"length {length} is beyond the model's window of {window} tokens: ask for less"
        )
    return min(length, window - task.max_new_tokens)


class Prompts:
    """Encodes samples for one model, in training and evaluation alike.

    The tokenizer's chat template is used where it has one, and the bare text followed by a line
    break otherwise.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._tokenizer = model.tokenizer
        self._eos = model.eos_token_ids

    def render(self, text: str, answer: str | None = None) -> str:
        """The conversation up to where the assistant answers, or up to the end of `answer`."""
        if not self._tokenizer.chat_template:
            return f"{text}\n{answer or ''}"
        messages = [{"role": "user", "content": text}]
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
        rendered = self._tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=answer is None,
            enable_thinking=False,  # templates that know no thinking ignore it
        )
        assert isinstance(rendered, str)
        return rendered

    def tokens(self, text: str) -> list[int]:
        """Tokens of a rendered prompt, with exactly one BOS where the tokenizer uses one."""
        ids = self._ids(text)
        bos = self._tokenizer.bos_token_id
        if self._adds_bos and ids[:1] != [bos]:
            return [bos, *ids]
        return ids

    @cached_property
    def _adds_bos(self) -> bool:
        bos = self._tokenizer.bos_token_id
        return bos is not None and self._tokenizer("x").input_ids[:1] == [bos]

    @cached_property
    def end_of_turn(self) -> int:
        """The token that ends an answer: what the template puts there, or else EOS.

        Raises:
            LongsealError: the tokenizer has neither.
        """
        marker = "ANSWER"
        special = set(self._tokenizer.all_special_ids) | self._eos
        if self._tokenizer.chat_template:
            rest = self.render("QUESTION", marker).rpartition(marker)[2]
            ending = next((token for token in self._ids(rest) if token in special), None)
            if ending is not None:
                return ending
        eos = self._tokenizer.eos_token_id
        if eos is None:
            raise LongsealError("the tokenizer has no end-of-sequence token")
        return int(eos)

    @property
    def stop_tokens(self) -> list[int]:
        """Tokens at which an answer is over."""
        return sorted(self._eos | {self.end_of_turn})

    def decode(self, tokens: list[int]) -> str:
        """Text of an answer, special tokens left out."""
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    def encode(self, sample: Sample, size: int = 0) -> EncodedSample:
        """Encode every prompt whole, then split it where the prompts part."""
        prompts = [self._prompt(sample, question) for question in sample.questions]
        shared = 0
        for place in zip(*(prompt[:-1] for prompt in prompts), strict=False):
            if len(set(place)) > 1:
                break
            shared += 1
        return EncodedSample(
            context=tuple(prompts[0][:shared]),
            questions=tuple(tuple(prompt[shared:]) for prompt in prompts),
            answers=tuple((*self._ids(q.answer), self.end_of_turn) for q in sample.questions),
            source=sample,
            size=size,
        )

    def fit(self, task: Task, length: int, questions: int, seed: str) -> EncodedSample:
        """Make the sample with the most units whose prompts are at most `length` tokens.

        Raises:
            LongsealError: not even one unit fits.
        """

        def draw(size: int, asked: int) -> EncodedSample:
            return self.encode(task.sample(size, asked, Random(seed)), size)

        def short(size: int) -> int:
            return draw(size, 1).length

        smallest = short(1)
        if smallest > length:
            raise LongsealError(
                f"length {length} is too short for the task {task.name}: even with the fewest "
                f"{task.unit} its prompt takes {smallest} tokens of this model's tokenizer"
            )
        per_unit = max(1.0, (short(33) - smallest) / 32)
        size = max(1, 1 + int((length - smallest) / per_unit))
        for _ in range(8):
            spare = length - short(size)
            if 0 <= spare < per_unit:
                break
            size = max(1, size + (int(spare / per_unit) or (1 if spare > 0 else -1)))
        encoded = draw(size, questions)
        while encoded.length > length and size > 1:
            size -= 1
            encoded = draw(size, questions)
        return encoded

    def _prompt(self, sample: Sample, question: Question) -> list[int]:
        return self.tokens(self.render(sample.context + question.text))

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        assert isinstance(ids, list)
        return ids


def check_lengths(prompts: Prompts, task: Task, lengths: Iterable[int], window: int | None) -> None:
    """Refuse lengths that cannot be measured, before any work is done.

    Raises:
        LongsealError: a length is beyond the window, or too short for one unit of the task.
    """
    for length in lengths:
        prompts.fit(task, prompt_limit(length, window, task), 1, "check")
