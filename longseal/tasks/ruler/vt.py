"""Variable tracking: a chain of assignments among noise."""

from __future__ import annotations

from itertools import islice, pairwise

from longseal.tasks.ruler.noise import LINE, hide_in_lines, noise
from longseal.tasks.ruler.scoring import Ruler
from longseal.tasks.ruler.words import letters
from longseal.tasks.sample import Question, Sample, Wanted

_NAMES = 5  # of a chain: four hops
_SHOT_TOKENS = 500
_HEAD = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
_ASK = "\nQuestion: Find all variables that are assigned the value {value} in the text above."
_PREFIX = (
    " Answer: According to the chain(s) of variable assignment in the text above, "
    f"{_NAMES} variables are assigned the value {{value}}, they are: "
)


class VariableTracking(Ruler):
    """Name the variables that have a value, each assigned from the one before.

    An example with an answer comes first: as much noise as 500 tokens hold, at least five lines,
    but (in samples that are shorter than RULER's) no more than the question itself has.
    """

    name = "ruler/vt"
    about = "the five variables that were assigned a value, one from another"
    unit = "sentences of noise"
    max_new_tokens = 30
    smallest = LINE * _NAMES

    def sample(self, wanted: Wanted) -> Sample:
        """Hide a chain of variables and ask for them all."""
        context, names, value = _chain(wanted, "chain", 5, wanted.size)
        return Sample(
            context=_example(wanted) + context,
            questions=(
                Question(
                    text=_ASK.format(value=value),
                    prefix=_PREFIX.format(value=value),
                    answer=f" {' '.join(names)}",  # the prefix ends with a space, as the example's
                    expected=tuple(names),
                ),
            ),
        )


def _example(wanted: Wanted) -> str:
    made = ""
    for sentences in range(VariableTracking.smallest, wanted.size + LINE, LINE):
        context, names, value = _chain(wanted, "example", 3, min(sentences, wanted.size))
        text = context + _ASK.format(value=value) + _PREFIX.format(value=value)
        if made and wanted.count(text) > _SHOT_TOKENS:
            break
        made = f"{text} {' '.join(names)}\n\n"
    return made


def _chain(wanted: Wanted, purpose: str, length: int, sentences: int) -> tuple[str, list[str], int]:
    """Noise with a chain's assignments in it, in order; its variables, and their value.

    Args:
        length: letters of a variable's name.
    """
    random = wanted.random(purpose)
    names = list(islice(letters(random, length), _NAMES))
    value = random.randrange(10_000, 99_999)
    lines = noise(sentences)
    places = sorted(random.sample(range(len(lines)), _NAMES))
    chain = [f"VAR {names[0]} = {value}"]
    chain += [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    return _HEAD + hide_in_lines(lines, zip(places, chain, strict=True)), names, value
