"""JSON key-value retrieval: the published prompt, valid JSON at every size, the published score."""

import json

import pytest
import tiny

from longseal.errors import LongsealError
from longseal.tasks.fitting import fit
from longseal.tasks.json_kv import FAMILY
from longseal.tasks.sample import Material, Question, Wanted

TASK = FAMILY.make("", Material())
PROMPTS = tiny.prompts()
#: What prompting.get_kv_retrieval_prompt of nelson-liu/lost-in-the-middle writes around its data.
PUBLISHED = (
    "Extract the value corresponding to the specified key in the JSON object below.\n\n"
    'JSON data:\n{data}\n\nKey: "{key}"\nCorresponding value:'
)


def the_object(sample):
    return json.loads(sample.context.partition("JSON data:\n")[2])


@pytest.mark.parametrize("size", [20, 500])
def test_the_prompt_is_the_published_one(size):
    sample = TASK.sample(Wanted(size))
    pairs = list(the_object(sample).items())
    assert len(pairs) == size // 10
    lines = [f'"{key}": "{value}"' for key, value in pairs]
    data = "{" + ",\n ".join(lines) + "}"
    (question,) = sample.questions
    key = next(key for key, value in pairs if value == question.answer)
    assert sample.context + question.text == PUBLISHED.format(data=data, key=key)


@pytest.mark.parametrize("size", range(20, 41))
def test_every_size_is_json_and_every_question_has_its_answer(size):
    sample = TASK.sample(Wanted(size, questions=3))
    found = the_object(sample)
    assert len(found) == size // 10 + bool(size % 10)
    assert len({*found, *found.values()}) == 2 * len(found)
    assert len(sample.questions) == min(3, size // 10)
    for question in sample.questions:
        key = question.text.split('"')[1]
        assert (found[key],) == question.expected == (question.answer,)
        assert sample.context.count(question.evidence) == 1
        assert question.evidence == f'"{key}": "{question.answer}"'


def test_the_questions_do_not_change_with_the_size_nor_the_context_with_the_questions():
    few, many = (TASK.sample(Wanted(size, questions=2)) for size in (40, 400))
    assert few.questions == many.questions
    assert TASK.sample(Wanted(40)).context == few.context
    assert TASK.sample(Wanted(40, seed="1")).questions != few.questions[:1]


@pytest.mark.parametrize("depth", [0, 0.25, 0.5, 0.75, 1])
def test_the_answer_stands_at_the_depth(depth):
    sample = TASK.sample(Wanted(405, questions=2, depth=depth))
    assert PROMPTS.depths(sample)[0] == pytest.approx(depth, abs=0.05)


@pytest.mark.parametrize("length", [580, 640, 777, 1024, 4096])
def test_a_length_is_met_to_a_twentieth(length):
    for seed in "abc":
        made = fit(PROMPTS, TASK, length, 4, seed)
        assert 0.95 * length <= made.length + TASK.max_new_tokens <= length


def test_a_length_that_holds_no_two_pairs_is_refused():
    with pytest.raises(LongsealError, match="too short for the task json-kv"):
        fit(PROMPTS, TASK, 400, 1, "a")


@pytest.mark.parametrize(
    ("said", "contains", "exact"),
    [
        ("0A-1b", 1, 1),
        (' "0a-1b".\n', 1, 1),
        ("The value is 0a-1b", 1, 0),
        ("0a-1c", 0, 0),
        ("", 0, 0),
    ],
)
def test_contains_is_the_published_score_and_exact_a_stricter_one(said, contains, exact):
    question = Question("", "0a-1b", ("0a-1b",))
    assert TASK.score(said, question) == {"contains": contains, "exact": exact}
