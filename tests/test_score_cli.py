"""`longseal score`: predictions of any engine are scored as longseal's own are."""

import json
import re
from pathlib import Path

import pytest
import tiny
from scipy.stats import binomtest
from tiny import outcome

from longseal.intervals import mean_interval
from longseal.tasks import code, json_kv, registry

PUBLISHED = Path(__file__).parents[2] / "shared/data/longeval/predictions/longchat-7b-16k"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for family in (code.FAMILY, json_kv.FAMILY):
        monkeypatch.setitem(registry.FAMILIES, family.name, family)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny.save(tmp_path_factory.mktemp("model") / "tiny"))


def write(rows, name="said.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def scored(capfd, *arguments):
    """Cases and means."""
    code, out, err = outcome(capfd, "score", *arguments, "--json")
    assert (code, err) == (0, ""), err
    *cases, means = map(json.loads, out.splitlines())
    return cases, means


def refused(capfd, *arguments):
    code, out, err = outcome(capfd, "score", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1), (code, out, err)
    return err


@pytest.mark.parametrize("name", ["lines", "code", "json-kv"])
def test_right_answers_score_1_and_others_answers_less(capfd, model, name):
    asked = ("--model", model, "--length", "2k", "--questions", "3", "-n", "2", "--json")
    out = outcome(capfd, "tasks", "sample", name, *asked)[1]
    rows = [json.loads(line) for line in out.splitlines()]
    right = write([row | {"prediction": f"It is {row['answers'][0]}."} for row in rows])
    others = [row["answers"][0] for row in rows[1:] + rows[:1]]
    wrong = write(
        [row | {"prediction": o} for row, o in zip(rows[:-1], others, strict=False)]
        + [rows[-1] | {"prediction": rows[-1]["answers"][0]}],
        "wrong.jsonl",
    )
    cases, means = scored(capfd, name, right)
    assert means["metric"] == registry.task(name).metric
    (row,) = means["summary"]
    assert (row["length"], row["total"], len(cases)) == (2048, 6, 6)
    assert row["scores"][means["metric"]]["value"] == 1
    (row,) = scored(capfd, name, wrong)[1]["summary"]
    assert row["scores"][means["metric"]]["value"] == pytest.approx(1 / 6)


@pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="LongEval's files are not in ../shared/data/longeval"
)
@pytest.mark.parametrize("count", [200, 300, 400, 500, 600, 680])
def test_longeval_s_published_answers_give_its_published_accuracy(capfd, count):
    path = PUBLISHED / f"{count}_response.txt"
    cases, means = scored(capfd, "lines", str(path))
    (row,) = means["summary"]
    assert row["total"] == len(cases) == 50
    accuracy = float(re.search(r"Accuracy: ([\d.]+)\s*$", path.read_text("utf-8"))[1])
    assert row["scores"]["last"]["value"] == pytest.approx(accuracy, abs=1e-12)


def test_a_prediction_of_longeval_s_may_go_over_lines(capfd):
    Path("file.txt").write_text(
        "Label: 12, Predict: It is\n\n12., Parsed: 12, prompt length: 90\n"
        "Label: 7, Predict: 8\n, Parsed: 8, prompt length: 90\nAccuracy: 0.5"
    )
    cases, means = scored(capfd, "lines", "file.txt")
    assert [(c["line"], c["prediction"]) for c in cases] == [(1, "It is\n\n12."), (4, "8\n")]
    assert means["summary"][0]["scores"]["last"]["value"] == 0.5


def test_lengths_groups_and_depths_are_counted_apart(capfd):
    def said(right, **where):
        return {"answers": ["1"], "prediction": "1" if right else "2"} | where

    rows = [
        said(True, wanted_length=2048, length=2040, depth=0.52),
        said(False, wanted_length=2048, length=2031, depth=0.98),
        said(True, length=512, depth=0.48),
        said(False, group="8k+"),
    ]
    path = write(rows)

    def means(*more):
        found = scored(capfd, "lines", path, *more)[1]["summary"]
        return [
            (r["group"], r["length"], r["depth"], r["total"], r["scores"]["last"]["value"])
            for r in found
        ]

    assert means() == [
        ("", 512, None, 1, 1.0),
        ("", 2048, None, 2, 0.5),
        ("8k+", None, None, 1, 0.0),
    ]
    assert means("--by-depth")[1:3] == [("", 2048, 0.5, 1, 1.0), ("", 2048, 1.0, 1, 0.0)]
    code, out, _ = outcome(capfd, "score", "lines", path, "--by-depth")
    assert (code, "2,048" in out, "8k+" in out, "0.50" in out) == (0, True, True, False)
    assert re.search(r"group.+length.+depth.+n.+last.+contains.+first", out)


def test_right_and_wrong_have_wilson_s_interval_and_parts_a_resampled_one():
    wilson = binomtest(3, 4).proportion_ci(method="wilson")
    assert mean_interval([1.0, 0.0, 1.0, 1.0]) == (wilson.low, wilson.high)
    low, high = mean_interval([0.2, 0.5, 0.4, 0.9, 0.6, 0.4])
    assert 0.2 < low < 0.5 < high < 0.9
    assert mean_interval([0.5])[0] == 0
    assert mean_interval([0.5])[1] == 1
    low, high = mean_interval([0.5] * 100)
    assert 0.3 < low < 0.5 < high < 0.7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}\n", "line 1: no field 'prediction'"),
        ('{"prediction": "1"}\n', "line 1: no field 'answers'"),
        ('{"prediction": "1", "answers": []}\n', "line 1: answers is empty"),
        ('{"prediction": "1", "answers": "1"}\n', "line 1: answers is not a list"),
        ('{"prediction": 1, "answers": ["1"]}\n', "line 1: prediction is not a text"),
        ('{"prediction": "1", "answers": ["one"]}\n', "line 1: "),
        ('{"prediction": "1", "answers": ["1"], "length": "2k"}\n', "length is not a number"),
        ('{"prediction": "1", "answers": ["1"], "fields": 3}\n', "fields is not an object"),
        ('{"prediction": "1", "answers": ["1"]}\n{"pred\n', "line 2: not JSON"),
        ("", "is empty"),
        ("Label: 1, Predict: 1, Parsed: 1, prompt length: 9\nLabel: 2\n", "line 2: not a case"),
    ],
)
def test_a_bad_file_is_one_line_that_says_where(capfd, text, said):
    Path("bad.jsonl").write_text(text)
    assert said in refused(capfd, "lines", "bad.jsonl")


def test_a_task_or_file_that_is_not_there_is_one_line(capfd):
    assert "there is no task 'line'" in refused(capfd, "line", write([{}]))
    assert "cannot be read" in refused(capfd, "lines", "nothing.jsonl")
    assert "--data" in refused(capfd, "qa", "said.jsonl")
