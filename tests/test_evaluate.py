"""An evaluation asks what it says, once, and every answer is a line that tells how to ask again."""

import json
from math import sqrt

import pytest
import tiny
from scipy.stats import norm

from longseal import EvaluateConfig, Evaluation, evaluate
from longseal.errors import LongsealError
from longseal.evaluation import Case
from longseal.files import Log
from longseal.tasks.prompt import Prompts

CONFIG = EvaluateConfig(lengths=(720, 800), samples=5, questions=2, seed=4)
FIELDS = {
    "variant",
    "task",
    "length",
    "seed",
    "context",
    "question",
    "tokens",
    "size",
    "expected",
    "prediction",
    "metric",
    "scores",
}


def forwards(model, work):
    """How often the network runs."""
    ran = []
    hook = model.network.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        work()
    finally:
        hook.remove()
    return len(ran)


@pytest.fixture(scope="module")
def whole(llama, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "results.jsonl"
    return evaluate(llama, tiny.Chance(), CONFIG, log=Log(path)), path.read_text().splitlines()


def test_every_line_has_all_that_it_takes_to_ask_again(llama, whole):
    prompts = Prompts(llama)
    for line in map(json.loads, whole[1]):
        assert line.keys() == FIELDS | {"event"}
        assert line["event"] == "case"
        assert (line["variant"], line["task"], line["seed"]) == ("base", "lines", 4)
        assert line["metric"] == "last"
        asked = 1 if line["context"] == 2 else 2
        seed = f"test/4/lines/{line['length']}/{line['context']}"
        encoded = prompts.fit(tiny.Chance(), line["length"], asked, seed)
        question = encoded.source.questions[line["question"]]
        assert question.expected == line["expected"]
        assert encoded.size == line["size"]
        prompt = len(encoded.context) + len(encoded.questions[line["question"]])
        assert prompt == line["tokens"] <= line["length"]
        assert line["scores"] == tiny.Chance().score(line["prediction"], line["expected"])


def test_samples_need_not_be_a_multiple_of_questions(whole):
    expected = [
        (length, context, question)
        for length in (720, 800)
        for context, asked in enumerate([2, 2, 1])
        for question in range(asked)
    ]
    assert [(c.length, c.context, c.question) for c in whole[0].cases] == expected
    assert len(whole[1]) == len(expected) == 10


def test_the_same_seed_asks_the_same_of_every_variant(llama, whole):
    with tiny.random_scales(llama, "channel").attached(llama.network):
        tuned = evaluate(llama, tiny.Chance(), CONFIG, variant="tuned")

    def asked(evaluation):
        return [(c.length, c.context, c.question, c.expected, c.tokens) for c in evaluation.cases]

    assert asked(tuned) == asked(whole[0])
    assert [c.prediction for c in tuned.cases] != [c.prediction for c in whole[0].cases]
    assert {c.variant for c in tuned.cases} == {"tuned"}


def test_another_seed_asks_other_questions(llama, whole):
    other = evaluate(llama, tiny.Chance(), CONFIG.model_copy(update={"seed": 5}))
    assert not {c.expected for c in other.cases} & {c.expected for c in whole[0].cases}


def test_no_context_is_asked_about_twice(whole):
    expected = [c.expected for c in whole[0].cases]
    assert len(set(expected)) == len(expected)


def test_a_finished_evaluation_runs_the_model_no_more(llama, whole, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(whole[1]) + "\n")
    found = []
    assert not forwards(
        llama, lambda: found.append(evaluate(llama, tiny.Chance(), CONFIG, log=Log(path)))
    )
    assert found[0] == whole[0]
    assert path.read_text().splitlines() == whole[1]


@pytest.mark.parametrize("kept", [1, 2, 3, 5, 9])
def test_an_interrupted_evaluation_ends_with_the_same_cases(llama, whole, tmp_path, kept):
    path = tmp_path / "results.jsonl"
    torn = whole[1][kept][: len(whole[1][kept]) // 2]  # the line that was being written
    path.write_text("\n".join(whole[1][:kept]) + "\n" + torn)
    found = []
    ran = forwards(
        llama, lambda: found.append(evaluate(llama, tiny.Chance(), CONFIG, log=Log(path)))
    )
    assert found[0] == whole[0]
    assert sorted(path.read_text().splitlines()) == sorted(whole[1])
    last_of_each_context = (1, 3, 4, 6, 8, 9)
    left = sum(last >= kept for last in last_of_each_context)
    assert ran <= left * (1 + tiny.Chance.max_new_tokens)  # the context, then a pass a token


def test_results_of_other_variants_and_seeds_are_not_taken_for_these(llama, whole, tmp_path):
    path = tmp_path / "results.jsonl"
    others = [json.loads(line) | {"variant": "tuned"} for line in whole[1]]
    others += [json.loads(line) | {"seed": 99} for line in whole[1]]
    path.write_text("".join(json.dumps(line) + "\n" for line in others))
    assert evaluate(llama, tiny.Chance(), CONFIG, log=Log(path)) == whole[0]
    assert len(path.read_text().splitlines()) == 3 * len(whole[1])


def cases(right, total, variant="base", length=600):
    scores = [{"last": i < right} for i in range(total)]
    return [
        Case(variant, "lines", length, 0, 0, i, 590, 3, "1", "1", "last", s)
        for i, s in enumerate(scores)
    ]


@pytest.mark.parametrize(
    ("right", "total"), [(0, 24), (1, 24), (7, 24), (12, 24), (24, 24), (1, 1), (0, 1), (431, 500)]
)
def test_the_interval_is_wilson_s(right, total):
    (found,) = Evaluation(tuple(cases(right, total))).accuracy()
    z, share = norm.ppf(0.975), right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    reach /= 1 + z * z / total
    assert (found.correct, found.total, found.value) == (right, total, share)
    assert found.low == pytest.approx(middle - reach, abs=1e-9)
    assert found.high == pytest.approx(middle + reach, abs=1e-9)
    assert 0 <= found.low <= share <= found.high <= 1


def test_accuracy_is_told_by_variant_and_length():
    mixed = [
        *cases(1, 4),
        *cases(2, 4, length=700),
        *cases(3, 4, "tuned"),
        *cases(4, 4, "tuned", 700),
    ]
    told = [(a.variant, a.length, a.correct, a.total) for a in Evaluation(tuple(mixed)).accuracy()]
    assert told == [
        ("base", 600, 1, 4),
        ("base", 700, 2, 4),
        ("tuned", 600, 3, 4),
        ("tuned", 700, 4, 4),
    ]


def test_questions_of_one_context_are_asked_of_one_pass_over_it(llama):
    config = EvaluateConfig(lengths=(800,), samples=4, questions=4)
    rows = []
    hook = llama.network.get_input_embeddings().register_forward_pre_hook(
        lambda _m, args: rows.append(args[0].numel())
    )
    try:
        evaluate(llama, tiny.ShortLines(), config)
    finally:
        hook.remove()
    assert 700 < sum(rows) < 2 * 800


def test_where_few_lines_fit_all_questions_are_asked_all_the_same(llama, tmp_path):
    config = EvaluateConfig(lengths=(620,), samples=5, questions=4)  # one line, or two
    log = Log(tmp_path / "results.jsonl")
    found = evaluate(llama, tiny.ShortLines(), config, log=log)
    assert {case.size for case in found.cases} <= {1, 2}
    assert len(found.cases) == 5
    again = []
    assert not forwards(
        llama, lambda: again.append(evaluate(llama, tiny.ShortLines(), config, log=log))
    )
    assert again == [found]


@pytest.mark.parametrize(("length", "match"), [(5000, "5000 is beyond"), (100, "100 is too short")])
def test_lengths_that_cannot_be_are_refused(llama, length, match):
    with pytest.raises(LongsealError, match=match):
        evaluate(llama, tiny.ShortLines(), lengths=(length,), samples=1)
