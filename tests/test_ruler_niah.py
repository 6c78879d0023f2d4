"""Needles: RULER's templates byte for byte, one needle for each question that tunes."""

import re

import pytest
from ruler_samples import prompt, sample
from tiny import prompts

from longseal.tasks.haystack import built_in

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
NUMBER = re.compile(r"One of the special magic numbers for (\S+-.+?) is: ([1-9]\d{6})\.")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
UUID_OF_UUID = re.compile(rf"One of the special magic uuids for ({UUID}) is: ({UUID})\.")


def one(kind, key, haystack):
    return (
        f"A special magic {kind} is hidden within the following text. Make sure to memorize it. "
        f"I will quiz you about the {kind} afterwards.\n{haystack}\n"
        f"What is the special magic {kind} for {key} mentioned in the provided text?"
        f" The special magic {kind} for {key} mentioned in the provided text is"
    )


def many(query, haystack):
    return (
        "Some special magic numbers are hidden within the following text. Make sure to memorize "
        f"it. I will quiz you about the numbers afterwards.\n{haystack}\n"
        f"What are all the special magic numbers for {query} mentioned in the provided text?"
        f" The special magic numbers for {query} mentioned in the provided text are"
    )


def haystack(made):
    return made.context.partition("afterwards.\n")[2]


def prose(text, needles=NUMBER):
    return " ".join(needles.sub("", text).split())


def test_a_number_in_noise():
    made = sample("niah_single_1", 40)
    (question,) = made.questions
    ((key, value),) = NUMBER.findall(made.context)
    assert prompt(made) == one("number", key, haystack(made))
    lines = haystack(made).split("\n")
    assert lines.count(NOISE) == 8
    assert len(lines) == 9
    assert question.expected == (value,)
    assert question.answer == f" {value}."
    assert question.evidence in lines


def test_noise_may_end_within_its_line():
    made = sample("niah_single_1", 12)
    assert haystack(made).endswith(f"{NOISE}\nThe grass is green. The sky is blue.")


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [("niah_single_2", "number", r"\d{7}"), ("niah_single_3", "uuid", UUID)],
)
def test_a_value_between_the_sentences_of_prose(name, kind, value):
    made = sample(name, 300)
    (question,) = made.questions
    needle = re.compile(rf"One of the special magic {kind}s for (\S+-.+?) is: ({value})\.")
    ((key, hidden),) = needle.findall(made.context)
    assert prompt(made) == one(kind, key, haystack(made))
    assert question.expected == (hidden,)
    assert made.context.count(question.evidence) == 1
    assert prose(haystack(made), needle) == " ".join(built_in().text(300).split())
    before = haystack(made).partition(question.evidence)[0].rstrip()
    assert not before or before[-1] in ".!?\"'”’)"


def test_four_keys_one_of_them_asked_for():
    made = sample("niah_multikey_1", 300)
    hidden = dict(NUMBER.findall(made.context))
    assert len(hidden) == 4
    (question,) = made.questions
    (key,) = (key for key in hidden if hidden[key] == question.expected[0])
    assert prompt(made) == one("number", key, haystack(made))


@pytest.mark.parametrize(
    ("name", "kind", "needle"),
    [("niah_multikey_2", "number", NUMBER), ("niah_multikey_3", "uuid", UUID_OF_UUID)],
)
def test_a_needle_among_needles(name, kind, needle):
    made = sample(name, 50)
    lines = haystack(made).split("\n")
    hidden = [needle.fullmatch(line).groups() for line in lines]
    assert len(dict(hidden)) == len(lines) == 51
    (question,) = made.questions
    ((key, _),) = (pair for pair in hidden if pair[1] == question.expected[0])
    assert prompt(made) == one(kind, key, haystack(made))


def test_four_values_of_one_key():
    made = sample("niah_multivalue", 300)
    (question,) = made.questions
    hidden = NUMBER.findall(made.context)
    ((key, *_),) = {(key,) for key, _ in hidden}
    assert prompt(made) == many(key, haystack(made))
    assert question.expected == tuple(value for _, value in hidden)
    assert len(set(question.expected)) == 4
    assert question.answer == " {}, {}, {}, and {}.".format(*question.expected)
    assert question.evidence == ""


def test_four_keys_all_of_them_asked_for():
    made = sample("niah_multiquery", 300)
    (question,) = made.questions
    hidden = dict(NUMBER.findall(made.context))
    keys = [next(k for k in hidden if hidden[k] == value) for value in question.expected]
    assert len(set(keys)) == 4
    assert prompt(made) == many("{}, {}, {}, and {}".format(*keys), haystack(made))


@pytest.mark.parametrize("name", ["niah_single_1", "niah_single_2", "niah_multikey_2"])
def test_needles_stand_at_many_places(name):
    shares = set()
    for seed in range(30):
        made = sample(name, 300, str(seed))
        place = made.context.index(made.questions[0].evidence)
        shares.add(int(5 * place / len(made.context)))
    assert shares == set(range(5))


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", ["niah_single_1", "niah_single_3", "niah_multikey_1"])
def test_a_needle_stands_at_the_depth_that_is_wanted(name, depth):
    made = sample(name, 600, depth=depth)
    assert prompts().depths(made)[0] == pytest.approx(depth, abs=0.07)


@pytest.mark.parametrize(
    ("name", "needles"),
    [
        ("niah_single_1", 6),
        ("niah_single_2", 6),
        ("niah_multikey_1", 6),
        ("niah_multikey_2", 206),
        ("niah_multivalue", 24),
        ("niah_multiquery", 24),
    ],
)
def test_tuning_hides_a_needle_for_each_question(name, needles):
    made = sample(name, 200, questions=6, training=True)
    assert len(made.questions) == 6
    assert len(NUMBER.findall(made.context)) == needles
    assert len({q.text for q in made.questions}) == 6
    assert len({value for q in made.questions for value in q.expected}) == 6 * len(
        made.questions[0].expected
    )
    for question in made.questions:
        assert all(value in made.context for value in question.expected)
        assert made.context.count(question.evidence) == 1 or not question.evidence
    assert len(sample(name, 200, questions=6).questions) == 1


def test_tuning_and_testing_read_other_prose():
    evaluated = {haystack(sample("niah_single_2", 60, str(seed)))[:40] for seed in range(20)}
    tuned = {haystack(sample("niah_single_2", 60, str(s), training=True))[:40] for s in range(20)}
    assert len(tuned) > 10 > len(evaluated)


def test_no_more_needles_are_hidden_in_noise_than_it_has_lines():
    assert len(sample("niah_single_1", 9, questions=6, training=True).questions) == 2
