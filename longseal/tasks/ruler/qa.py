"""Questions about one document (or two) among many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from longseal.tasks.ruler.qa_file import Item, Kind, QaFile, read_qa
from longseal.tasks.ruler.scoring import Ruler
from longseal.tasks.sample import ExhaustedError, NoMaterialError, Question, Sample, Wanted

_RULE = (
    "Answer the question based on the given documents. Only give me the answer and do not output "
    "any other words.\n\n"
)
_HEAD = f"{_RULE}The following are given documents.\n\n"
_ASK = f"\n\n{_RULE}Question: {{query}}"
_PREFIX = " Answer:"
_SPARE = 32  # documents beyond those that fit, to choose the last ones from
_LAST = 4  # documents that may give way to others
_SLACK = 0.02  # may be left open, so that documents of the same subject do not give way needlessly

KINDS: dict[str, tuple[Kind, str]] = {
    "qa_1": ("squad", "SQuAD v2's dev file (dev-v2.0.json)"),
    "qa_2": ("hotpotqa", "HotpotQA's dev file (hotpot_dev_distractor_v1.json)"),
}


class Qa(Ruler):
    """Answer a question from documents, most of them beside the point.

    Documents stay whole; the last ones are chosen so that they fill what is left of the length.
    Evaluation and tuning ask about documents of their own: every other one that has questions.

    Args:
        variant: its name in `KINDS`.
        files: files that the user named.

    Raises:
        NoMaterialError: none of them is the one that it takes.
    """

    about = "questions about one document among many"
    unit = "tokens of documents"
    max_new_tokens = 32
    metric = "part"

    def __init__(self, variant: str, files: Iterable[Path]) -> None:
        self.name = f"ruler/{variant}"
        kind, needed = KINDS[variant]
        read = (read_qa(path) for path in files)
        found = next((file for file in read if file is not None and file.kind == kind), None)
        if found is None:
            raise NoMaterialError(f"{self.name} needs {needed}: name it with --data")
        self._file = found
        groups = list(dict.fromkeys(item.group for item in found.items))
        self._test, self._train = (set(groups[start::2]) for start in (0, 1))

    def sample(self, wanted: Wanted) -> Sample:
        """Ask one question; `wanted.size` is what documents beside the gold ones may take."""
        file, groups = self._file, self._train if wanted.training else self._test
        items = [item for item in file.items if item.group in groups]
        item = wanted.random("question").choice(items)
        documents = [*item.gold, *_distractors(file, item, wanted)]
        wanted.random("order").shuffle(documents)
        texts = (
            f"Document {number}:\n{file.documents[document]}"
            for number, document in enumerate(documents, 1)
        )
        return Sample(
            context=_HEAD + "\n\n".join(texts),
            questions=(
                Question(
                    text=_ASK.format(query=item.question),
                    prefix=_PREFIX,
                    answer=f" {item.answers[0]}",
                    expected=item.answers,
                ),
            ),
        )


def _distractors(file: QaFile, item: Item, wanted: Wanted) -> list[int]:
    """Documents that together have at most `wanted.size` tokens, and nearly so many."""
    random = wanted.random("distractors")
    known = {*item.gold, *item.near}
    others = [document for document in range(len(file.documents)) if document not in known]
    order = [*random.sample(item.near, len(item.near)), *random.sample(others, len(others))]
    sizes: list[int] = []
    beyond = total = 0
    for place, document in enumerate(order, 1):
        sizes.append(wanted.count(f"Document {place}:\n{file.documents[document]}\n\n"))
        total += sizes[-1]
        beyond += total > wanted.size
        if beyond == _SPARE:
            break
    if total < wanted.size:
        raise ExhaustedError(
            f"{file.path} has only {len(file.documents)} documents: ask for a shorter length"
        )
    fitting = sum(end <= wanted.size for end in accumulate(sizes))
    sure = fitting if fitting == len(sizes) else max(0, fitting - _LAST)
    room = wanted.size - sum(sizes[:sure])
    filling = _fill(sizes[sure:], room, room - int(wanted.size * _SLACK))
    return [*order[:sure], *(order[sure + place] for place in filling)]


def _fill(sizes: Sequence[int], room: int, enough: int) -> list[int]:
    """Places of sizes whose sum is at most `room`: the first that make `enough`, or the most."""
    mask = (1 << room + 1) - 1
    sums = [1]  # bit n: some of the sizes so far have the sum n
    for size in sizes:
        sums.append((sums[-1] | sums[-1] << size) & mask)
        if sums[-1].bit_length() > enough:
            break
    total = sums[-1].bit_length() - 1
    chosen = []
    for place in reversed(range(len(sums) - 1)):
        if not sums[place] >> total & 1:  # not without this one
            chosen.append(place)
            total -= sizes[place]
    return chosen
