"""Whether anything of the examples' content is left in what was made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from longseal.tasks.own.examples import Example
from longseal.tasks.own.format import Format, Template
from longseal.tasks.own.leaves import Choice
from longseal.tasks.own.tokens import CJK, FUNCTION_WORDS
from longseal.tasks.sample import Sample

_WORDS = 8
_WORD = re.compile(rf"[{CJK}]|[^\W_]+")


def survivors(form: Format, examples: Iterable[Example], samples: Iterable[Sample]) -> list[str]:
    """Runs of eight words of the examples, the format's own left out, that samples have too.

    The words that the format says are left out on both sides, wherever they stand, and so are
    case, marks and words such as `the`: what is compared is content alone.
    """
    format_words = FUNCTION_WORDS.union(*map(_words, _literals(form)))

    def shingles(texts: Iterable[str]) -> set[tuple[str, ...]]:
        content = [[w for w in _words(text) if w not in format_words] for text in texts]
        return {
            tuple(words[i : i + _WORDS])
            for words in content
            for i in range(len(words) - _WORDS + 1)
        }

    theirs = shingles(text for example in examples for text in example.texts)
    found: dict[tuple[str, ...], None] = {}
    for sample in samples:
        texts = [text for _, text in sample.before] + [sample.context]
        texts += [
            text for question in sample.questions for text in (question.text, question.answer)
        ]
        found.update(dict.fromkeys(sorted(shingles(texts) & theirs)))
    return [" ".join(shingle) for shingle in found]


def _words(text: str) -> list[str]:
    return [match[0].casefold() for match in _WORD.finditer(text)]


def _literals(form: Format) -> Iterator[str]:
    turns = [turn.template for turn in form.before if turn.template is not None]
    for template in (form.head, form.tail, *(record.template for record in form.records), *turns):
        yield from _said(template)
    for ask in form.asks:
        yield from (part for part in (*ask.question, *ask.answer) if isinstance(part, str))


def _said(template: Template) -> Sequence[str]:
    parts = [part for slot in template.slots for shape in slot.shapes for part in shape.parts]
    said = [part for part in parts if isinstance(part, str)]
    choices = [value for part in parts if isinstance(part, Choice) for value in part.values]
    return [*template.literals, *said, *choices]
