"""An evaluation asks what it says, once, and every answer is a line that tells how to ask again."""

import json
from dataclasses import fields, replace

import pytest
import tiny
import torch

from longseal import EvaluateConfig, evaluate
from longseal.errors import LongsealError
from longseal.evaluation import Case
from longseal.files import Log
from longseal.tasks import Question, Recorded, Sample
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import Prompts

CONFIG = EvaluateConfig(lengths=(720, 800), samples=5, questions=2, seed=4)
FIELDS = {field.name for field in fields(Case)}


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
        encoded = fit(prompts, tiny.Chance(), line["length"], asked, seed)
        question = encoded.source.questions[line["question"]]
        assert list(question.expected) == line["expected"]
        assert encoded.size == line["size"]
        prompt = len(encoded.context) + len(encoded.questions[line["question"]])
        assert prompt == line["tokens"] <= line["length"] - tiny.Chance.max_new_tokens
        assert line["scores"] == tiny.Chance().score(line["prediction"], question)
        assert line["depth"] == prompts.depths(encoded.source)[line["question"]]
        assert line["seconds"] > 0


def test_samples_need_not_be_a_multiple_of_questions(whole):
    expected = [
        (length, context, question)
        for length in (720, 800)
        for context, asked in enumerate([2, 2, 1])
        for question in range(asked)
    ]
    assert [(c.length, c.context, c.question) for c in whole[0].cases] == expected
    assert len(whole[1]) == len(expected) == 10


def timeless(evaluation):
    """The cases but for how long they took."""
    return [replace(case, seconds=0.0) for case in evaluation.cases]


def asked_of(evaluation):
    return [(c.length, c.context, c.question, c.expected, c.prompt) for c in evaluation.cases]


def test_the_same_seed_asks_the_same_of_every_variant(llama, whole):
    with tiny.random_scales(llama, "channel").attached(llama.network):
        tuned = evaluate(llama, tiny.Chance(), CONFIG, variant="tuned")

    assert asked_of(tuned) == asked_of(whole[0])
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
    assert timeless(found[0]) == timeless(whole[0])
    keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert sorted(keys) == sorted(json.loads(line)["key"] for line in whole[1])
    last_of_each_context = (1, 3, 4, 6, 8, 9)
    left = sum(last >= kept for last in last_of_each_context)
    assert ran <= left * (1 + tiny.Chance.max_new_tokens)  # the context, then a pass a token


def test_results_of_another_variant_are_not_taken_for_these(llama, whole, tmp_path):
    path = tmp_path / "results.jsonl"
    others = [json.loads(line) | {"variant": "tuned"} for line in whole[1]]
    path.write_text("".join(json.dumps(line) + "\n" for line in others))
    assert asked_of(evaluate(llama, tiny.Chance(), CONFIG, log=Log(path))) == asked_of(whole[0])
    assert len(path.read_text().splitlines()) == 2 * len(whole[1])


def taken(path, model, task=None, **changes):
    """How many of the answers kept in `path` are taken for those of this evaluation."""
    before = len(path.read_text().splitlines())
    config = CONFIG.model_copy(update=changes)
    found = evaluate(model, task or tiny.Chance(), config, log=Log(path))
    return len(found.cases) - (len(path.read_text().splitlines()) - before)


def test_a_stale_result_is_never_taken_for_a_new_one(llama, loaded, whole, tmp_path):
    """Kept answers serve the same model, scales, settings, seed and prompts, and no others."""
    path = tmp_path / "results.jsonl"

    class Longer(tiny.Chance):
        max_new_tokens = 7

    class Reworded(tiny.Chance):
        def sample(self, wanted):
            made = super().sample(wanted)
            questions = [replace(q, text=q.text + "Now.") for q in made.questions]
            return replace(made, questions=tuple(questions))

    def fresh():
        path.write_text("\n".join(whole[1]) + "\n")
        return path

    assert taken(fresh(), llama) == len(whole[1])
    assert taken(fresh(), llama, seed=5) == 0
    assert taken(fresh(), llama, task=Longer()) == 0
    assert taken(fresh(), llama, task=Reworded()) == 0
    assert taken(fresh(), loaded("other")) == 0
    for seed in (5, 6):
        with tiny.random_scales(llama, "channel", seed=seed).attached(llama.network):
            assert taken(fresh() if seed == 5 else path, llama) == 0
            assert taken(path, llama) == len(whole[1])
    weight = llama.network.model.layers[1].mlp.up_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(1.01)
    try:
        assert taken(fresh(), llama) == 0
    finally:
        with torch.no_grad():
            weight.copy_(before)


# Samples of a file


class File(Recorded):
    max_new_tokens = 6
    metric = "said"

    def score(self, prediction, question):
        return {"said": float(question.expected[0] in prediction)}


def file(*lengths):
    """A file with a sample of each length, in letters."""
    question = Question(" What?", " It.", ("it",))
    return File("mine", [Sample(f"{n:04d}" + "x" * n, (question,)) for n in lengths])


def test_a_file_s_samples_are_asked_as_they_are(llama):
    found = evaluate(llama, file(100, 300, 200))
    assert [case.context for case in found.cases] == [0, 1, 2]
    assert [c.tokens - found.cases[0].tokens for c in found.cases] == [0, 200, 100]
    longest = max(case.tokens for case in found.cases) + File.max_new_tokens
    assert {case.length for case in found.cases} == {longest}


def test_a_sample_over_the_window_is_left_out_and_counted(llama):
    found = evaluate(llama, file(100, 4090, 200, 5000))
    assert [case.context for case in found.cases] == [0, 2]
    assert found.excluded == {"mine": 2}
    with pytest.raises(LongsealError, match="no sample fits"):
        evaluate(llama, file(5000))


def test_the_answer_s_budget_counts_towards_the_window(llama):
    taken = evaluate(llama, file(100)).cases[0].tokens - 100
    assert not evaluate(llama, file(4096 - 6 - taken)).excluded
    assert evaluate(llama, file(100, 4096 - 5 - taken)).excluded == {"mine": 1}


def test_only_so_many_questions_of_a_file_are_asked(llama):
    assert len(evaluate(llama, file(*range(100, 110)), samples=3).cases) == 3


def test_the_parts_of_a_file_are_whole_and_have_nothing_in_common():
    samples = file(*range(13))
    parts = [samples.part(name) for name in ("train", "held-out", "test")]
    assert sorted(s.context for part in parts for s in part) == [
        f"{n:04d}" + "x" * n for n in range(13)
    ]
    with pytest.raises(LongsealError, match="at least 5"):
        file(1, 2, 3).part("test")


# Grids of depths


class AtDepths(tiny.ShortLines):
    depths = (0.0, 0.5, 1.0)


def test_a_task_with_depths_is_asked_once_at_each(llama):
    found = evaluate(llama, AtDepths(), lengths=(900,), samples=6)
    assert [case.wanted_depth for case in found.cases] == [0.0, 0.5, 1.0] * 2
    assert len({case.prompt for case in found.cases}) == 6
    for case in found.cases:
        assert case.depth > 0.5 if case.wanted_depth == 1 else case.depth < 0.95


def test_depths_that_are_asked_for_replace_the_task_s(llama):
    found = evaluate(llama, tiny.ShortLines(), lengths=(900,), samples=2, depths=(0.25, 0.75))
    assert [case.wanted_depth for case in found.cases] == [0.25, 0.75]


def test_several_tasks_are_told_apart(llama):
    class Other(tiny.ShortLines):
        name = "other"

    found = evaluate(llama, [tiny.ShortLines(), Other()], lengths=(900,), samples=2)
    assert [case.task for case in found.cases] == ["lines", "lines", "other", "other"]


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
