"""What a user gets wrong costs one line on stderr and exit code 2, and nothing is written."""

import os
from pathlib import Path

import pytest
import tiny

from longseal import Adapter
from longseal.cli import main
from longseal.tasks.registry import FAMILIES

COMMANDS = ["run", "evaluate", "tune", "fold", "report"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setitem(FAMILIES, "lines", tiny.family(tiny.ShortLines))


@pytest.fixture
def model(checkpoint):
    return str(checkpoint("llama"))


@pytest.fixture
def adapter(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter") / "adapter"
    Adapter.of(llama, tiny.random_scales(llama, "head"), {"task": "lines"}).save(folder)
    return str(folder)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def outcome(capfd, *arguments):
    """Exit code, stdout and the lines of stderr."""
    code, out, err = tiny.outcome(capfd, *arguments)
    return code, out, err.splitlines()


def refused(capfd, *arguments):
    """The one line that a refusal prints."""
    before = tree(Path.cwd())
    code, out, err = outcome(capfd, *arguments)
    assert code == 2, (code, err)
    assert len(err) == 1, err
    assert err[0].startswith("longseal: ")
    assert "Traceback" not in out + err[0]
    assert tree(Path.cwd()) == before
    return err[0]


@pytest.mark.parametrize("command", ["run", "evaluate", "tune"])
@pytest.mark.parametrize("path", ["./no/such/folder", "/no/such/model", "no-such.gguf"])
def test_a_path_that_is_not_there(capfd, command, path):
    assert f"{path} does not exist" in refused(capfd, command, path)


@pytest.mark.parametrize("command", ["run", "evaluate", "tune"])
def test_a_misspelt_hub_id(capfd, command):
    line = refused(capfd, command, "HuggingFaceTB/SmolLM-misspelt")
    assert "HuggingFaceTB/SmolLM-misspelt cannot be loaded" in line
    assert "misspelt" in line


@pytest.mark.parametrize("name", ["not a hub id", "a//b", "so-much:not"])
def test_a_name_that_no_model_can_have(capfd, name):
    assert name in refused(capfd, "evaluate", name)


def test_a_folder_without_a_config(capfd, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no config.json" in refused(capfd, "run", "empty")
    assert "no config.json" in refused(capfd, "run", "./empty")


def test_a_file_that_is_no_model(capfd, tmp_path):
    (tmp_path / "words.txt").write_text("x")
    assert "words.txt" in refused(capfd, "evaluate", "words.txt")
    (tmp_path / "broken.gguf").write_text("x")
    assert "broken.gguf" in refused(capfd, "evaluate", "broken.gguf")


def test_a_config_that_is_no_json(capfd, tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{")
    assert "base cannot be loaded" in refused(capfd, "evaluate", "base")


@pytest.mark.parametrize("command", ["run", "evaluate", "tune"])
def test_an_unknown_task(capfd, model, command):
    line = refused(capfd, command, model, "--task", "needles")
    assert "needles" in line
    assert "lines" in line


@pytest.mark.parametrize("command", ["run", "tune"])
def test_an_unknown_kind(capfd, model, command):
    line = refused(capfd, command, model, "--kind", "layer")
    assert "kind" in line
    assert "head" in line
    assert "channel" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--lengths", "1k,long"),
        ("evaluate", "--lengths", "2kb"),
        ("evaluate", "--lengths", "1.5k"),
        ("tune", "--length", "long"),
        ("tune", "--length", "5k-2k"),
        ("tune", "--train-length", "-5"),
    ],
)
def test_a_word_that_is_no_length(capfd, model, arguments):
    command, flag, word = arguments
    assert flag in refused(capfd, command, model, f"{flag}={word}")


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("evaluate", "--samples=0"),
        ("evaluate", "--samples=-3"),
        ("evaluate", "--samples=some"),
        ("evaluate", "--lengths=0"),
        ("evaluate", "--seed=-1"),
        ("tune", "--held-out=0"),
        ("tune", "--questions=0"),
        ("tune", "--steps=0"),
        ("tune", "--lr=0"),
        ("tune", "--guard=-1"),
        ("tune", "--guard=some"),
        ("run", "--train-samples=0"),
    ],
)
def test_a_number_that_cannot_be(capfd, model, command, flag):
    assert flag.split("=")[0] in refused(capfd, command, model, flag)


@pytest.mark.parametrize(
    "arguments",
    [("run", "--lengths", "720,5k"), ("evaluate", "--lengths", "5k"), ("tune", "--length", "5k")],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_length_beyond_the_window(capfd, model, arguments, dry):
    command, *flags = arguments
    line = refused(capfd, command, model, *flags, *dry)
    assert "5120 is beyond" in line
    assert "4096" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--lengths", "100,720"),
        ("evaluate", "--lengths", "100"),
        ("tune", "--length", "100"),
        ("tune", "--length=900", "--train-length=100"),
        ("run", "--lengths=900", "--train-length=100"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_length_that_is_too_short(capfd, model, arguments, dry):
    command, *flags = arguments
    assert "100 is too short" in refused(capfd, command, model, *flags, *dry)


@pytest.mark.parametrize("command", ["run", "tune"])
@pytest.mark.parametrize(
    ("flag", "match"),
    [
        ("--guard-task=needles", "needles"),
        ("--guard-text=no.txt", "no.txt cannot be read"),
        ("--task=lines:2,lines", "lines is named twice"),
        ("--task=lines:0", "the weight of lines is 0"),
    ],
)
def test_tasks_and_texts_that_cannot_be(capfd, model, command, flag, match):
    assert match in refused(capfd, command, model, *LENGTHS[command][:2], flag)


LENGTHS = {
    "run": ["--lengths=720", "--train-length=720", "--guard=off"],
    "evaluate": ["--lengths=720"],
    "tune": ["--length=720", "--train-length=720", "--guard=off"],
}


@pytest.mark.parametrize("command", LENGTHS)
@pytest.mark.parametrize("out", ["file", "file/out", "/proc/longseal"])
def test_an_out_that_cannot_be_written(capfd, model, tmp_path, command, out):
    (tmp_path / "file").write_text("x")
    line = refused(capfd, command, model, *LENGTHS[command], "--out", out)
    assert line.startswith(f"longseal: {out}")
    assert not Path("/proc/longseal").exists()


@pytest.mark.parametrize("command", LENGTHS)
def test_an_out_that_is_taken(capfd, model, tmp_path, command):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    assert "no run" in refused(capfd, command, model, *LENGTHS[command], "--out", "out")
    (tmp_path / "out" / "config.json").write_text('{"model_type": "llama"}')  # a model's own
    assert "no run" in refused(
        capfd, command, model, *LENGTHS[command], "--out", "out", "--overwrite"
    )
    (tmp_path / "out" / "config.json").write_text('{"model": "m", "task": "lines"}')
    line = refused(capfd, command, model, *LENGTHS[command], "--out", "out")
    assert "--resume" in line
    assert "--overwrite" in line


def test_a_fold_into_what_exists_or_cannot_be_written(capfd, model, adapter, tmp_path):
    (tmp_path / "there").mkdir()
    assert "there exists" in refused(capfd, "fold", model, adapter, "there")
    (tmp_path / "file").write_text("x")
    assert "file/out" in refused(capfd, "fold", model, adapter, "file/out")
    assert "/proc/sealed" in refused(capfd, "fold", model, adapter, "/proc/sealed")


def test_an_adapter_of_another_base(capfd, checkpoint, adapter):
    other = str(checkpoint("other"))
    line = refused(capfd, "evaluate", other, "--adapter", adapter, "--lengths", "720")
    assert "another base" in line
    assert "another base" in refused(capfd, "fold", other, adapter, "sealed")


def test_an_adapter_of_another_base_makes_no_run_folder(capfd, checkpoint, adapter):
    other = str(checkpoint("other"))
    refused(capfd, "evaluate", other, "--adapter", adapter, "--lengths=720", "--out", "results")


def test_an_adapter_that_is_not_there(capfd, model):
    assert "nothing" in refused(capfd, "evaluate", model, "--adapter", "nothing")
    assert "nothing" in refused(capfd, "fold", model, "nothing", "sealed")


def test_a_report_of_nothing(capfd, tmp_path):
    assert "nothing" in refused(capfd, "report", "nothing")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(capfd, "report", "empty")


def test_a_device_that_is_not_here(capfd, model):
    for device in ("cuda:7", "gpu"):
        assert device in refused(capfd, "evaluate", model, "--lengths=720", "--device", device)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option(capfd, model, command):
    assert "--no-such-flag" in refused(capfd, command, model, "--no-such-flag")


def test_an_unknown_command(capfd):
    assert "tuen" in refused(capfd, "tuen")


@pytest.mark.parametrize("arguments", [["fold"], ["fold", "a"], ["fold", "a", "b"], ["report"]])
def test_an_argument_too_few(capfd, arguments):
    refused(capfd, *arguments)


def test_an_argument_too_many(capfd, model):
    assert "another" in refused(capfd, "evaluate", model, "another")


def test_resume_and_overwrite_of_nothing_start_anew(capfd, model):
    flags = ["--lengths=720", "--samples=1"]
    assert outcome(capfd, "evaluate", model, *flags, "--out", "a", "--resume")[0] == 0
    assert outcome(capfd, "evaluate", model, *flags, "--out", "b", "--overwrite")[0] == 0
    assert tree(Path.cwd()) == [
        "a", "a/config.json", "a/results.jsonl", "b", "b/config.json", "b/results.jsonl"
    ]  # fmt: skip


# What goes right


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(capfd, command):
    code, out, err = outcome(capfd, command, "--help")
    assert (code, err) == (0, [])
    assert f"longseal {command} " in out.split("Usage:")[1].partition("\n")[2]


def test_help_and_version_work_without_a_command(capfd):
    code, out, _ = outcome(capfd, "--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)
    code, out, _ = outcome(capfd, "--version")
    assert code == 0
    assert out.strip() == "0.1.0"


@pytest.mark.parametrize("command", LENGTHS)
@pytest.mark.parametrize("out", [[], ["--out", "out"]], ids=["", "out"])
def test_a_dry_run_writes_nothing_and_prints_a_table(capfd, model, command, out):
    code, text, err = outcome(capfd, command, model, *LENGTHS[command], *out, "--dry-run")
    assert (code, err) == (0, [])
    assert tree(Path.cwd()) == []
    assert "what it would cost" in text
    for word in ("stage", "tokens", "steps", "time", "memory", "in all", "GiB"):
        assert word in text


def test_a_dry_run_of_tuning_tells_its_stages(capfd, model):
    flags = ["--length=1200", "--dry-run"]
    _, text, _ = outcome(capfd, "tune", model, *flags)
    last = "look at other formats again"
    for stage in ("judge the base", "tune at 600", "choose", "tune at 1,200, if it pays", last):
        assert stage in text
    _, text, _ = outcome(capfd, "tune", model, *flags, "--recipe=paper", "--guard=off")
    assert "tune at 1,200 " in text
    assert "50 " in text
    assert "if it pays" not in text
    assert last not in text


def test_the_steps_one_after_the_other(capfd, model):
    """Tune, evaluate with the adapter, fold, evaluate the folded model, report."""
    tiny_run = ["--length=720", "--train-length=720", "--samples=4", "--held-out=2"]
    code, text, err = outcome(capfd, "tune", model, *tiny_run, "--out", "tuned")
    assert (code, err) == (0, [])
    assert "chosen:" in text
    assert "what else it can do (bound: 2 points" in text
    assert "adapter: tuned/adapter" in " ".join(text.split())
    flags = ["--lengths=720", "--samples=3"]
    code, text, err = outcome(
        capfd, "evaluate", model, *flags, "--adapter", "tuned/adapter", "--out", "measured"
    )
    assert (code, err) == (0, [])
    assert "accuracy" in text
    assert "tuned" in text
    code, text, err = outcome(capfd, "fold", model, "tuned/adapter", "sealed")
    assert (code, err) == (0, [])
    assert Path("sealed/config.json").is_file()
    code, text, err = outcome(capfd, "evaluate", "sealed", *flags)
    assert (code, err) == (0, [])
    for folder in ("tuned", "measured"):
        code, text, err = outcome(capfd, "report", folder)
        assert (code, err) == (0, [])
        assert Path(folder, "report.html").is_file()


def test_interrupting_says_how_to_go_on(capfd, model, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tiny.ShortLines, "score", interrupt)
    command = ["evaluate", model, "--lengths=720", "--out", "out"]
    code, _, err = outcome(capfd, *command, "--overwrite")
    assert code == 130
    again = " ".join([*command, "--resume"])
    assert err == [f"longseal: interrupted. To go on: longseal {again}"]


def test_what_nobody_foresaw_is_one_line_too(capfd, model, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("of two\nlines")

    monkeypatch.setattr(tiny.ShortLines, "score", fail)
    monkeypatch.delenv("LONGSEAL_DEBUG", raising=False)
    code, _, err = outcome(capfd, "evaluate", model, "--lengths=720")
    assert code == 1
    assert len(err) == 1
    assert "ZeroDivisionError: of two lines" in err[0]
    monkeypatch.setitem(os.environ, "LONGSEAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["evaluate", model, "--lengths=720"])
