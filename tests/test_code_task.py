"""The code task: files that Python runs, and questions that one function alone answers."""

import ast
import re

import pytest
import tiny

from longseal.errors import LongsealError
from longseal.tasks.code import _KINDS, FAMILY
from longseal.tasks.fitting import fit
from longseal.tasks.sample import Material, Question, Wanted

TASK = FAMILY.make("", Material())
PROMPTS = tiny.prompts()
CALL = re.compile(
    r"\nWhich function in the file above (.+)\? Called with (.+), it returns (.+)\. "
    r"Answer with the function's name alone\."
)


def the_file(sample):
    return re.search(r"```python\n(.*)```", sample.context, re.DOTALL)[1]


def functions(sample):
    space = {}
    exec(the_file(sample), space)
    return {name: made for name, made in space.items() if name != "__builtins__"}


def calls(function, given):
    try:
        return function(*given)
    except (TypeError, AttributeError, KeyError):
        return None


def asked(question):
    does, given, result = CALL.fullmatch("\n" + question.text).groups()
    given = ast.literal_eval(f"({given},)".replace(" and ", ", "))
    return does, given, ast.literal_eval(result)


def same(one, other):
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("seed", "ab")
def test_called_as_the_question_says_one_function_alone_returns_that(seed):
    sample = TASK.sample(Wanted(4000, questions=120, seed=seed))
    made = functions(sample)
    assert len(made) == 400
    assert len(sample.questions) == 120
    for question in sample.questions:
        _, given, result = asked(question)
        right = [name for name, function in made.items() if same(calls(function, given), result)]
        assert (question.answer,) == question.expected == tuple(right)


def test_what_is_described_has_the_numbers_and_the_label_of_one_body_alone():
    sample = TASK.sample(Wanted(4000, questions=120))
    parsed = ast.parse(the_file(sample)).body
    constants = {
        node.name: {str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant)}
        for node in parsed
    }
    for question in sample.questions:
        does, _, _ = asked(question)
        stated = set(re.findall(r'\d+|(?<=")[a-z]+ [a-z]+(?=")', does))
        body = {text.strip(": ") for text in constants[question.answer]}
        assert stated
        assert stated <= body
        others = [
            name for name, found in constants.items() if stated <= {t.strip(": ") for t in found}
        ]
        assert others == [question.answer]
        assert question.answer not in question.text


def test_every_kind_is_asked_about():
    sample = TASK.sample(Wanted(1000, questions=100))
    asks = [re.sub(r'\d+|(?<=")[a-z]+ [a-z]+(?=")', "*", asked(q)[0]) for q in sample.questions]
    assert set(asks) == {re.sub(r"\{\w+\}", "*", kind.does) for kind in _KINDS}


@pytest.mark.parametrize("size", range(20, 41))
def test_every_size_is_python_with_as_many_functions_and_comments(size):
    sample = TASK.sample(Wanted(size, questions=3))
    file = the_file(sample)
    names = [node.name for node in ast.parse(file).body]
    assert len(set(names)) == len(names) == size // 10
    assert sum(line.startswith("#") for line in file.splitlines()) == size % 10
    assert len(sample.questions) == min(3, size // 10)
    assert all(sample.context.count(q.evidence) == 1 for q in sample.questions)
    assert all(f"def {q.answer}(" in q.evidence for q in sample.questions)


def test_the_questions_do_not_change_with_the_size_nor_the_context_with_the_questions():
    few, many = (TASK.sample(Wanted(size, questions=2)) for size in (40, 400))
    assert few.questions == many.questions
    assert TASK.sample(Wanted(40)).context == few.context
    assert TASK.sample(Wanted(40, seed="1")).questions != few.questions[:1]


@pytest.mark.parametrize("depth", [0, 0.25, 0.5, 0.75, 1])
def test_the_answer_stands_at_the_depth(depth):
    sample = TASK.sample(Wanted(405, questions=2, depth=depth))
    assert PROMPTS.depths(sample)[0] == pytest.approx(depth, abs=0.05)


@pytest.mark.parametrize("length", [800, 1024, 1333, 4096])
def test_a_length_is_met_to_a_twentieth(length):
    for seed in "abc":
        made = fit(PROMPTS, TASK, length, 4, seed)
        assert 0.95 * length <= made.length + TASK.max_new_tokens <= length


def test_a_length_that_holds_no_two_functions_is_refused():
    with pytest.raises(LongsealError, match="too short for the task code"):
        fit(PROMPTS, TASK, 400, 1, "a")


@pytest.mark.parametrize(
    ("said", "contains", "exact"),
    [
        ("sort_walrus", 1, 1),
        ("`sort_walrus()`.\n", 1, 1),
        ("It is sort_walrus.", 1, 0),
        ("resort_walrus", 0, 0),
        ("sort_walruses", 0, 0),
        ("", 0, 0),
    ],
)
def test_contains_takes_the_name_as_a_word_and_exact_nothing_beside_it(said, contains, exact):
    question = Question("", "sort_walrus", ("sort_walrus",))
    assert TASK.score(said, question) == {"contains": contains, "exact": exact}
