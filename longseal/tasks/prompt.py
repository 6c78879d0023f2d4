"""Text to tokens: the one place where a template is applied and a boundary is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from longseal.errors import LongsealError
from longseal.tasks.sample import Question, Sample

_THINK, _THOUGHT = "<think>", "</think>"


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

    def prompt(self, question: int) -> tuple[int, ...]:
        """All tokens of a prompt."""
        return self.context + self.questions[question]

    @property
    def length(self) -> int:
        """Tokens of the longest prompt, template included."""
        return len(self.context) + max(map(len, self.questions))

    @property
    def tokens(self) -> int:
        """Tokens of the context and of all questions with their answers."""
        return sum(map(len, (self.context, *self.questions, *self.answers)))


class Speaks(Protocol):
    """What prompts are written for: a loaded model, or its tokenizer alone."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Turns text into tokens, by its template where it has one."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens at which the model stops."""
        ...


class Prompts:
    """Encodes samples for one model, in training and evaluation alike.

    The tokenizer's chat template is used where it has one, and the bare text otherwise, followed by
    a line break unless it leads on to the answer by itself (with a colon, or an answer prefix).

    Models that think before they answer are told not to where their template knows how; others are
    given `thinking` tokens more, and an answer prefix is left out for them.

    Args:
        thinking: tokens for the thoughts of a model that cannot be told not to think.
    """

    def __init__(self, model: Speaks, thinking: int = 2048) -> None:
        self._tokenizer = model.tokenizer
        self._eos = model.eos_token_ids
        self._thinking = thinking

    def render(self, sample: Sample, question: Question, answer: str | None = None) -> str:
        """The prompt as text, up to where the model goes on, or with the whole turn of `answer`."""
        text = sample.context + question.text
        prefix = "" if self.thinks else question.prefix
        if not (sample.chat and self._tokenizer.chat_template):
            before = "".join(f"{turn}\n\n" for _, turn in sample.before)
            leads = prefix or not sample.chat or text.rstrip().endswith((":", "："))
            return before + text + prefix + ("" if leads else "\n") + (answer or "")
        turns = [*sample.before, ("user", text)]
        if answer is not None:
            return self._chat([*turns, ("assistant", prefix + answer)], open_end=False)
        return self._chat(turns, open_end=True) + prefix

    def tokens(self, text: str) -> list[int]:
        """Tokens of a rendered prompt, with exactly one BOS where the tokenizer uses one."""
        ids = self.ids(text)
        bos = self._tokenizer.bos_token_id
        if not self._adds_bos:
            return ids
        start = next((place for place, token in enumerate(ids) if token != bos), len(ids))
        return [bos, *ids[start:]]

    def ids(self, text: str) -> list[int]:
        """Tokens of a text as it is."""
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        assert isinstance(ids, list)
        return ids

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self.ids(text))

    @cached_property
    def end_of_turn(self) -> int:
        """The token that ends an answer: what the template puts there, or else EOS.

        Raises:
            LongsealError: the tokenizer has neither.
        """
        marker = "ANSWER"
        special = set(self._tokenizer.all_special_ids) | self._eos
        if self._tokenizer.chat_template:
            turns = [("user", "QUESTION"), ("assistant", marker)]
            rest = self._chat(turns, open_end=False).rpartition(marker)[2]
            ending = next((token for token in self.ids(rest) if token in special), None)
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

    @cached_property
    def thinks(self) -> bool:
        """Whether the model thinks before it answers and its template cannot switch that off."""
        if self._thought is None or not self._tokenizer.chat_template:
            return False
        turns = [("user", "QUESTION")]
        silent, thoughtful = (self._chat(turns, open_end=True, thinking=on) for on in (False, True))
        return silent == thoughtful

    @property
    def thinking(self) -> int:
        """Tokens that are kept for thoughts, beside the answer's own."""
        return self._thinking if self.thinks else 0

    def text(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        text = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    def decode(self, tokens: Sequence[int]) -> tuple[str, int]:
        """Text of an answer, and how many tokens of thought came before.

        Thoughts that were not ended within the budget leave an empty answer.
        """
        thoughts = 0
        if self.thinks:
            found = self._thought in tokens
            thoughts = tokens.index(self._thought) + 1 if found else len(tokens)
        text = self.text(tokens[thoughts:])
        return text.lstrip("\n") if thoughts else text, thoughts

    def encode(self, sample: Sample, size: int = 0) -> EncodedSample:
        """Encode every prompt whole, then split it where the prompts part."""
        prompts = [self.tokens(self.render(sample, question)) for question in sample.questions]
        shared = 0
        for place in zip(*(prompt[:-1] for prompt in prompts), strict=False):
            if len(set(place)) > 1:
                break
            shared += 1
        return EncodedSample(
            context=tuple(prompts[0][:shared]),
            questions=tuple(tuple(prompt[shared:]) for prompt in prompts),
            answers=tuple(self._answer(sample, question) for question in sample.questions),
            source=sample,
            size=size,
        )

    def depths(self, sample: Sample) -> tuple[float | None, ...]:
        """Where each question's evidence stands in the context, in tokens: 0 start, 1 end.

        Measured in the prompt as rendered: the tokens of the context before the evidence, as a
        share of all its tokens but the evidence's. None where there is no one place.
        """
        return tuple(self._depth(sample, question) for question in sample.questions)

    def evidence(self, sample: Sample, question: Question) -> tuple[int, int] | None:
        """First and last place (exclusive) of the evidence's tokens in the prompt.

        None where there is no one place.
        """
        marks = self._marks(sample, question)
        if marks is None:
            return None
        text = self.render(sample, question)
        added = len(self.tokens(text)) - self.count(text)  # a BOS
        return marks[1] + added, marks[2] + added

    def _depth(self, sample: Sample, question: Question) -> float | None:
        marks = self._marks(sample, question)
        if marks is None:
            return None
        first, left, right, last = marks
        others = last - first - (right - left)
        return (left - first) / others if others > 0 else 0.0

    def _marks(self, sample: Sample, question: Question) -> tuple[int, int, int, int] | None:
        """Tokens of the text before the context, before and after the evidence, and at its end."""
        evidence = question.evidence.strip()
        text = self.render(sample, question)
        context = sample.context.strip()
        start = text.find(context) if context else -1
        within = context.find(evidence) if evidence else -1
        if start < 0 or within < 0:
            return None
        place = start + within
        marks = (start, place, place + len(evidence), start + len(context))
        first, left, right, last = (self.count(text[:mark]) for mark in marks)
        return first, left, right, last

    def _answer(self, sample: Sample, question: Question) -> tuple[int, ...]:
        text = question.answer
        if self.thinks:  # an empty thought, so that what is learned is the answer
            opened = self.render(sample, question).rstrip().endswith(_THINK)
            text = ("" if opened else f"{_THINK}\n") + f"\n{_THOUGHT}\n\n{text}"
        return (*self.ids(text), self.end_of_turn)

    def _chat(
        self, turns: Sequence[tuple[str, str]], *, open_end: bool, thinking: bool = False
    ) -> str:
        """Render turns; a system turn that the template refuses or drops goes to the user's."""
        (role, first), *rest = turns
        if role == "system" and rest:
            try:
                rendered = self._template(turns, open_end, thinking)
                if first.strip() in rendered:
                    return rendered
            except TemplateError:
                pass
            (role, second), *rest = rest
            turns = [(role, f"{first}\n\n{second}"), *rest]
        return self._template(turns, open_end, thinking)

    def _template(self, turns: Sequence[tuple[str, str]], open_end: bool, thinking: bool) -> str:
        rendered = self._tokenizer.apply_chat_template(
            [{"role": role, "content": text} for role, text in turns],
            tokenize=False,
            add_generation_prompt=open_end,
            enable_thinking=thinking,  # templates that know no thinking ignore it
        )
        assert isinstance(rendered, str)
        return rendered

    @cached_property
    def _adds_bos(self) -> bool:
        bos = self._tokenizer.bos_token_id
        return bos is not None and self._tokenizer("x").input_ids[:1] == [bos]

    @cached_property
    def _thought(self) -> int | None:
        """The token that ends a thought, where the model has one."""
        token = self._tokenizer.get_vocab().get(_THOUGHT)
        return None if token is None else int(token)
