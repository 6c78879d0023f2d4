"""`longseal generate`."""

import json
from pathlib import Path

import pytest
import tiny
from test_own_formats import FORMATS

from longseal.tasks.own.file import read_task_file
from longseal.tasks.own.task import OwnFile, OwnTask
from longseal.tasks.sample import Wanted


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.save(folder)
    return str(folder)


@pytest.fixture
def examples(tmp_path):
    example = FORMATS["invoices"]
    row = {"context": example.context, "question": example.question.strip()}
    path = tmp_path / "invoices.jsonl"
    path.write_text(json.dumps({**row, "answer": example.answer}) + "\n")
    return path


def test_a_task_file_is_made_of_one_example(capfd, model, examples, tmp_path):
    out = tmp_path / "task.jsonl"
    call = ("--like", str(examples), "-n", "2", "--length", "2k", "--model", model)
    code, said, _ = tiny.outcome(capfd, "generate", *call, "--out", str(out))
    assert code == 0
    assert "INV-<####>" in said
    assert f"--task {out} --length 2048" in said
    task = read_task_file(out)
    assert isinstance(task, OwnTask)
    assert len(json.loads(task.sample(Wanted(12)).context)) == 12
    header, *rows = map(json.loads, out.read_text().splitlines())
    assert header["made"] == {"samples": 2, "length": 2048, "seed": 0, "tokenizer": model}
    assert len({row["context"] for row in rows}) == 2
    assert all(row["expected"][0] in row["context"] for row in rows)

    code, _, error = tiny.outcome(capfd, "generate", *call, "--out", str(out))
    assert (code, "is there already: add --overwrite" in error) == (2, True)
    before = out.read_text()
    assert tiny.outcome(capfd, "generate", *call, "--out", str(out), "--overwrite")[0] == 0
    assert out.read_text() == before


def test_a_dry_run_makes_nothing(capfd, examples, tmp_path):
    out = tmp_path / "task.jsonl"
    code, said, _ = tiny.outcome(
        capfd, "generate", "--like", str(examples), "--out", str(out), "--dry-run", "--json"
    )
    assert code == 0
    assert json.loads(said)["cut"] == "JSON members"
    assert not out.exists()


def test_a_writer_s_file_has_its_samples_alone(capfd, model, examples, tmp_path, monkeypatch):
    class Author:
        def write(self, instruction, seed):
            one = "first name" in instruction or "last name" in instruction or "noun" in instruction
            return "Zebulon" if one else "we went to the sea and came home again"

    opened = []
    monkeypatch.setattr(
        "longseal.tasks.own.writer.open_writer", lambda name: opened.append(name) or Author()
    )
    out = tmp_path / "task.jsonl"
    call = ("--like", str(examples), "-n", "1", "--length", "2k", "--model", model)
    url = "http://me:secret@localhost:1/v1"
    code, _, _ = tiny.outcome(capfd, "generate", *call, "--out", str(out), "--writer", url)
    assert (code, opened) == (0, [url])
    assert "Zebulon" in out.read_text()
    assert "secret" not in out.read_text()
    assert isinstance(read_task_file(out), OwnFile)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--length", "many"), "--length: 'many' is not a length"),
        (("--length", "8k"), "beyond the model's window of 4096"),
        (("-n", "0"), "-n has to be at least 1"),
        (("--keep", "nowhere"), "--keep 'nowhere' matches nothing"),
        (("--length", "100"), "too short"),
        (("--out", "EXAMPLES", "--overwrite"), "holds the examples"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(options, said, capfd, model, examples, tmp_path):
    options = [str(examples) if option == "EXAMPLES" else option for option in options]
    call = ["--like", str(examples), "--model", model, *options]
    if "--length" not in options:
        call += ["--length", "2k"]
    code, _, error = tiny.outcome(capfd, "generate", *call)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["invoices.jsonl"]


def test_the_readme_s_example_goes_all_the_way(capfd, tmp_path, monkeypatch):
    """Examples to a task file, then evaluated and tuned on like any other task."""
    made = Path(__file__).parents[1] / "examples" / "invoices.jsonl"
    model = str(tiny.save(tmp_path / "model"))
    monkeypatch.chdir(tmp_path)
    call = ["generate", "--like", str(made), "-n", "2", "--length", "1k", "--model", model]
    assert tiny.outcome(capfd, *call, "--out", "invoices-task.jsonl")[0] == 0
    flags = ["--task", "invoices-task.jsonl", "--lengths=700", "--samples=2", "--questions=2"]
    tuning = ["--train-samples=2", "--train-length=600", "--out", "runs/invoices"]
    code, said, error = tiny.outcome(capfd, "run", model, *flags, *tuning)
    assert (code, error) == (0, "")
    assert "700" in said
    lines = Path("runs/invoices/results.jsonl").read_text().splitlines()
    log = [json.loads(line) for line in lines]
    cases = [record for record in log if record["event"] == "case"]
    assert {case["variant"] for case in cases} == {"base", "tuned", "folded"}
    assert {case["task"] for case in cases} == {"invoices-task"}
    originals = [json.loads(line)["answer"].split()[-1] for line in made.read_text().splitlines()]
    assert not {value for case in cases for value in case["expected"]} & set(originals)
