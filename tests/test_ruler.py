"""What holds for all tasks of RULER: scores, seeds, lengths, the answer prefix."""

import pytest
from ruler_samples import hotpotqa, prompt, sample, squad, task
from tiny import TEMPLATE, prompts

from longseal.errors import LongsealError
from longseal.tasks.fitting import fit
from longseal.tasks.ruler import FAMILY
from longseal.tasks.sample import Material, NoMaterialError, Question

SIZES = {
    "niah_single_1": 40,
    "niah_single_2": 300,
    "niah_single_3": 300,
    "niah_multikey_1": 300,
    "niah_multikey_2": 30,
    "niah_multikey_3": 30,
    "niah_multivalue": 300,
    "niah_multiquery": 300,
    "vt": 60,
    "cwe": 200,
    "fwe": 400,
    "qa_1": 200,
    "qa_2": 60,
}
TOKENS = {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}


@pytest.fixture
def files(tmp_path):
    return squad(tmp_path), hotpotqa(tmp_path)


def test_the_family_stands_for_the_13_tasks():
    assert FAMILY.whole
    assert list(FAMILY.variants) == list(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_names_and_answer_budgets_are_ruler_s(name, files):
    made = task(name, *files)
    assert made.name == f"ruler/{name}"
    assert made.max_new_tokens == TOKENS.get(name, 128)
    assert made.metric == ("part" if name.startswith("qa") else "all")
    assert made.depths == ()


@pytest.mark.parametrize("name", SIZES)
def test_the_seed_makes_the_sample(name, files):
    first, again, other = (sample(name, SIZES[name], seed, *files) for seed in ("a", "a", "b"))
    assert first == again
    assert first.context != other.context


@pytest.mark.parametrize("name", SIZES)
def test_there_is_one_question_and_its_references_are_in_the_context(name, files):
    for training in (False, True):
        made = sample(name, SIZES[name], "0", *files, training=training)
        (question,) = made.questions
        if name == "qa_2":
            assert question.expected[0].replace("Name", "Title") in made.context
        else:
            assert question.expected[0] in made.context
        if not name.startswith("qa"):
            assert all(reference in made.context for reference in question.expected)
        assert task(name, *files).score(question.answer, question) == {
            task(name, *files).metric: 1.0
        }


@pytest.mark.parametrize("name", SIZES)
def test_what_is_asked_does_not_change_with_the_size(name, files):
    small, large = (sample(name, size, "0", *files) for size in (SIZES[name], 2 * SIZES[name] - 9))
    assert len(small.context) < len(large.context)
    asked = [(q.text, q.expected, q.prefix) for made in (small, large) for q in made.questions]
    assert asked[0][0] == asked[1][0]
    assert set(asked[0][1]) == set(asked[1][1])
    assert asked[0][2] == asked[1][2]


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("It is Anna, Bert and CARL.", 1.0),
        (" anna\n\ncarl ", 2 / 3),
        ("Annabert", 2 / 3),
        ("An na", 0.0),
        ("an\x00na bert", 1 / 3),
        ("", 0.0),
    ],
)
def test_the_share_of_references_is_scored(said, score):
    asked = Question("", "", ("Anna", "bert", "Carl"))
    assert task("vt").score(said, asked) == {"all": pytest.approx(score)}


@pytest.mark.parametrize(
    ("said", "reference", "score"),
    [("one\ttwo", "one\ntwo", 1.0), ("one\x1f", "one", 1.0), ("one ", "one ", 0.0)],
)
def test_answers_are_cleaned_as_ruler_does(said, reference, score):
    """Control characters become line breaks, space around goes."""
    assert task("vt").score(said, Question("", "", (reference,))) == {"all": score}


@pytest.mark.parametrize(
    ("said", "score"), [("It is anna.", 1.0), ("BERT", 1.0), ("Carl", 0.0), ("", 0.0)]
)
def test_one_reference_is_enough_for_qa(said, score, files):
    asked = Question("", "", ("Anna", "bert"))
    assert task("qa_1", *files).score(said, asked) == {"part": score}


@pytest.mark.parametrize("name", SIZES)
def test_the_answer_prefix_ends_the_prompt(name, files):
    made = sample(name, SIZES[name], "0", *files)
    (question,) = made.questions
    assert question.prefix.startswith(" ")
    assert prompts(None).render(made, question) == prompt(made)
    assert prompts().render(made, question).endswith(f"<|turn|>assistant\n{question.prefix}")


@pytest.mark.parametrize("name", SIZES)
def test_the_chat_template_is_left_alone(name, files):
    words = "Some answers are all here. "
    made = sample(name, SIZES[name], "0", *files)
    rendered = prompts(words + TEMPLATE).render(made, made.questions[0])
    assert rendered.startswith(words)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("niah_single_1", 1024),
        ("niah_single_2", 1024),
        ("niah_single_3", 1024),
        ("niah_multikey_1", 1536),
        ("niah_multikey_2", 2048),
        ("niah_multikey_3", 4096),
        ("niah_multivalue", 1536),
        ("niah_multiquery", 1536),
        ("vt", 3072),
        ("cwe", 3072),
        ("fwe", 1536),
        ("qa_1", 2048),
        ("qa_2", 1536),
    ],
)
def test_samples_have_95_to_100_percent_of_the_length(name, length, files):
    """Chat template, answer prefix and answer budget included."""
    made = fit(prompts(), task(name, *files), length, 1, "0")
    total = made.length + task(name, *files).max_new_tokens
    assert 0.95 * length <= total <= length


@pytest.mark.parametrize("name", ["niah_single_1", "niah_multikey_3", "vt", "cwe", "fwe"])
def test_too_short_a_length_ends_in_an_error(name):
    with pytest.raises(LongsealError, match=f"length 300 is too short for the task ruler/{name}"):
        fit(prompts(), task(name), 300, 1, "0")


@pytest.mark.parametrize(("name", "needed"), [("qa_1", "dev-v2.0"), ("qa_2", "hotpot_dev")])
def test_questions_need_their_file(name, needed, files):
    with pytest.raises(NoMaterialError, match=rf"ruler/{name} needs .*{needed}.*--data"):
        FAMILY.make(name, Material(tuple(f for f in files if needed not in f.name)))
