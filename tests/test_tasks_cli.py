"""`longseal tasks`: tasks are listed and explained, and a sample is what a model would be asked."""

import json
from io import StringIO

import pytest
import tiny
from rich.console import Console
from tiny import outcome

from longseal.models.tokenizer import load_tokenizer
from longseal.tasks import code, registry, task
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import Prompts
from longseal.tasks.sample import Wanted


@pytest.fixture(autouse=True)
def _code_is_a_task(monkeypatch):
    monkeypatch.setattr("longseal.cli.tasks.console._width", 200)
    monkeypatch.setitem(registry.FAMILIES, "code", code.FAMILY)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tokenizer and no weights; its window is 4096 tokens."""
    folder = tiny.save(tmp_path_factory.mktemp("model") / "tiny")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return str(folder)


@pytest.fixture
def longeval(tmp_path):
    """A file such as LongEval's, of three samples."""
    rows = []
    for seed in "abc":
        sample = task("lines").sample(Wanted(5, seed=seed))
        (question,) = sample.questions
        key = question.answer.split(" line ")[1].split(" ")[0]
        prompt = sample.context + question.text
        number = int(question.expected[0])
        rows.append({"prompt": prompt, "random_idx": [key, 0], "expected_number": number})
    path = tmp_path / "5_lines.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refused(capfd, *arguments):
    code, out, err = outcome(capfd, "tasks", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1), (code, out, err)
    return err


def rows(capfd, *arguments):
    code, out, err = outcome(capfd, "tasks", "sample", *arguments, "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_every_task_is_listed_with_what_it_asks_and_its_source(capfd):
    code, out, _ = outcome(capfd, "tasks")
    assert code == 0
    listed = json.loads(outcome(capfd, "tasks", "--json")[1])
    assert [row["name"] for row in listed] == [name for name, _ in registry.names()]
    assert all(row["name"].split("/")[-1] in out and row["about"] for row in listed)
    family = outcome(capfd, "tasks", "ruler")[1]
    ruler = [row["name"] for row in listed if row["name"].startswith("ruler/")]
    assert len(ruler) == 13
    assert all(name in family for name in ruler)
    (lines,) = (row for row in listed if row["name"] == "lines")
    assert lines["source"] == task("lines").source
    assert lines["source"] in out


def test_a_task_is_explained(capfd):
    code, out, _ = outcome(capfd, "tasks", "show", "lines")
    assert code == 0
    facts = ("on the line with a given key", "LongEval", "100", "last, first, contains", "--data")
    assert all(fact in out for fact in facts)


def test_a_task_that_needs_a_file_is_explained_with_and_without(capfd, longeval):
    code, out, _ = outcome(capfd, "tasks", "show", "qa")
    assert (code, "needs a file" in out, "--data FILE" in out) == (0, True, True)
    assert (
        "3 samples of its files"
        in outcome(capfd, "tasks", "show", "lines", "--data", str(longeval))[1]
    )


def test_a_json_object_a_question_says_all_that_an_engine_needs(capfd, model):
    found = rows(capfd, "lines", "--model", model, "--length", "2k", "--questions", "3", "-n", "2")
    assert [(row["context"], row["question"]) for row in found] == [
        (context, question) for context in range(2) for question in range(3)
    ]
    assert len({row["prompt"] for row in found}) == 6
    prompts = Prompts(load_tokenizer(model))
    for row in found:
        assert row["tokens"] == len(prompts.tokens(row["prompt"]))
        assert row["length"] == row["tokens"] + row["max_new_tokens"]
        assert 0.95 * 2048 <= row["length"] <= row["wanted_length"] == 2048
        (turn,) = row["messages"]
        assert prompts._chat([("user", turn["content"])], open_end=True) == row["prompt"]
        assert turn["role"] == "user"
        evidence = f"REGISTER_CONTENT is <{row['answers'][0]}>\n"
        assert row["prompt"].count(evidence) == 1
        before, after = map(len, row["messages"][0]["content"].split(evidence))
        assert row["depth"] == pytest.approx(before / (before + after), abs=0.1)
        assert (row["task"], row["seed"], row["prefix"], row["fields"]) == ("lines", 0, "", {})


def test_samples_are_those_that_evaluate_asks(capfd, model):
    (row,) = rows(capfd, "lines", "--model", model, "--length", "1k", "--seed", "7")
    prompts = Prompts(load_tokenizer(model))
    sample = fit(prompts, task("lines"), 1024, 1, "test/7/lines/1024/0").source
    assert row["prompt"] == prompts.render(sample, sample.questions[0])


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_the_answer_stands_at_the_depth_that_is_asked_for(capfd, model, depth):
    (row,) = rows(capfd, "code", "--model", model, "--length", "4k", "--depth", str(depth))
    assert row["depth"] == pytest.approx(depth, abs=0.05)
    assert row["wanted_depth"] == depth


def test_the_samples_of_a_file_are_given_in_order(capfd, model, longeval):
    found = rows(capfd, "lines", "--model", model, "--data", str(longeval), "-n", "2")
    given = [json.loads(line) for line in longeval.read_text().splitlines()]
    assert [row["messages"][0]["content"] for row in found] == [g["prompt"] for g in given[:2]]
    assert [row["answers"] for row in found] == [[str(g["expected_number"])] for g in given[:2]]
    assert found[0]["wanted_length"] is None
    assert len(rows(capfd, "lines", "--model", model, "--data", str(longeval), "-n", "9")) == 3


def test_a_sample_is_printed_to_be_read_with_its_evidence_marked(capfd, model, monkeypatch):
    arguments = ("lines", "--model", model, "--length", "1k", "--questions", "2")
    found = rows(capfd, *arguments)
    printed = StringIO()
    console = Console(file=printed, force_terminal=True, color_system="standard")
    monkeypatch.setattr("longseal.cli.tasks.console", console)
    outcome(capfd, "tasks", "sample", *arguments)
    text = printed.getvalue()
    for row in found:
        assert f"REGISTER_CONTENT is <{row['answers'][0]}>" in text
        assert f"depth {row['depth']:.2f}" in text
        assert f"{row['length']:,} tokens, 100 of them for the answer" in text
    marked = [part.partition("\x1b[0m")[0] for part in text.split("\x1b[30;43m")[1:]]
    assert {line for line in marked if line.strip()} == {
        line
        for line in found[0]["prompt"].splitlines()
        if any(line.endswith(f"is <{row['answers'][0]}>") for row in found)
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "line"), "there is no task 'line'"),
        (("sample", "line"), "there is no task 'line'"),
        (("sample", "qa"), "--data"),
        (("sample", "lines", "--length", "300"), "the shortest sample takes "),
        (("sample", "lines", "--length", "8k"), "8192 is beyond the model's window of 4096"),
        (("sample", "lines", "--length", "2km"), "is not a length"),
        (("sample", "lines", "--depth", "1.5"), "--depth"),
        (("sample", "lines", "-n", "0"), "--count"),
    ],
)
def test_bad_input_is_one_line(capfd, model, arguments, said):
    last = () if arguments[0] == "show" else ("--model", model)
    assert said in refused(capfd, *arguments, *last)


def test_a_depth_of_a_file_s_samples_is_refused(capfd, model, longeval):
    arguments = ("lines", "--data", str(longeval), "--depth", "0.5", "--model", model)
    assert "given, not made" in refused(capfd, "sample", *arguments)
