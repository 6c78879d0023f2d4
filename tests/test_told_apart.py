"""What was asked is what was meant: nothing left unread, counted twice, tested after training."""

import json
from dataclasses import replace

import pytest
import tiny

from longseal import EvaluateConfig, evaluate
from longseal.config import TuneConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.run_folder import RunFolder
from longseal.tasks import Material, Question, Recorded, Sample, choose
from longseal.tasks.lines import FAMILY
from longseal.tasks.prompt import Prompts
from longseal.tasks.scoring import score_file
from longseal.tuning.samples import Samples


class File(Recorded):
    max_new_tokens = 6
    metric = "said"

    def score(self, prediction, question):
        return {"said": float(question.expected[0] in prediction)}


def sample(context, text=" What?", expected="it"):
    return Sample(context, (Question(text, " It.", (expected,)),))


@pytest.mark.parametrize("names", [["needle", "needle/single"], ["ruler", "ruler/vt"]])
def test_a_task_is_not_asked_twice(names):
    with pytest.raises(LongsealError, match="name it once"):
        choose(names, Material())


@pytest.mark.parametrize("flag", ["data", "haystack"])
def test_a_file_that_no_task_reads_is_refused(flag, tmp_path):
    path = tmp_path / "file"
    given = Material((path,)) if flag == "data" else Material(haystack=path)
    with pytest.raises(LongsealError, match=f"--{flag}"):
        choose(["json-kv"], given)


def test_a_setting_that_no_task_minds_is_refused(llama):
    for setting in ({"depths": (0.5,)}, {"truncate": 100}):
        task = File("mine", [sample("x")]) if "depths" in setting else tiny.ShortLines()
        with pytest.raises(LongsealError, match=f"--{next(iter(setting))}"):
            evaluate(llama, task, EvaluateConfig(lengths=(720,), samples=1, **setting))


def test_samples_on_one_context_are_on_one_side():
    asked = [sample(f"context {n % 5}", f" {n}?") for n in range(10)]
    parts = [File("mine", asked).part(name) for name in ("train", "held-out", "test")]
    assert [{s.context[-1] for s in part} for part in parts] == [{"0", "1", "2"}, {"3"}, {"4"}]
    assert sum(map(len, parts)) == 10


def test_what_tuning_is_judged_on_leaves_room_for_the_answer(llama):
    template = len(Prompts(llama).encode(sample("")).prompt(0))
    asked = [sample(f"{n}" + "x" * 80) for n in range(5)]
    window = template + 81 + File.max_new_tokens
    for given, fits in ((window, True), (window - 1, False)):
        samples = Samples(File("mine", asked), 1.0, Prompts(llama), TuneConfig(length=50), given)
        if fits:
            assert len(samples.held_out()) == 1
        else:
            with pytest.raises(LongsealError, match="fits the window"):
                samples.held_out()


def test_an_answer_that_was_corrected_is_scored_anew(llama, tmp_path):
    log = Log(tmp_path / "results.jsonl")
    first = sample("x" * 50)
    (question,) = first.questions
    other = replace(first, questions=(replace(question, expected=("other",)),))
    for asked in (first, other):
        (case,) = evaluate(llama, File("mine", [asked]), log=log).cases
        assert case.expected == asked.questions[0].expected


def test_a_run_is_not_resumed_with_a_file_that_was_changed(llama, tmp_path):
    data = tmp_path / "items.jsonl"
    data.write_text("one")
    config = EvaluateConfig(data=(data,))
    RunFolder.open(tmp_path / "run", llama, config)
    RunFolder.open(tmp_path / "run", llama, config, resume=True)
    data.write_text("two")
    with pytest.raises(LongsealError, match="files was"):
        RunFolder.open(tmp_path / "run", llama, config, resume=True)


def test_a_published_answer_that_is_no_number_is_refused(tmp_path):
    path = tmp_path / "lines.jsonl"
    row = {"prompt": "x", "random_idx": ["a", 0], "expected_number": "abc"}
    path.write_text(json.dumps(row))
    with pytest.raises(LongsealError, match="line 1: expected_number"):
        FAMILY.make("", Material((path,)))
    path.write_text(json.dumps(row | {"expected_number": 3}))
    with pytest.raises(LongsealError, match="does not ask"):
        FAMILY.make("", Material((path,)))


def test_a_blank_reference_is_not_found_in_every_prediction(tmp_path):
    path = tmp_path / "said.jsonl"
    path.write_text(json.dumps({"prediction": "no idea", "answers": ["yes", ""]}))
    with pytest.raises(LongsealError, match="blank"):
        score_file(path, File("mine", [sample("x")]))
