"""`longseal evaluate` with several adapters: asked the same, told apart, beside the base."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import tiny
from test_vllm_engine import made, vllm  # noqa: F401 - vllm is a fixture

from longseal import EvaluateConfig
from longseal.cli.variants import named
from longseal.errors import LongsealError
from longseal.evaluation import evaluate, evaluate_variants
from longseal.evaluation.plan import Plan, plan
from longseal.files import Log
from longseal.fold import fold
from longseal.models import load as loading
from longseal.tasks.prompt import Prompts
from longseal.tasks.registry import FAMILIES

FLAGS = ("--lengths=720", "--samples=4", "--questions=2")


class Other(tiny.Chance):
    name = "other"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setitem(FAMILIES, "lines", tiny.family(tiny.Chance))
    other = tiny.family(Other)
    monkeypatch.setitem(FAMILIES, "other", type(other)("other", Other.about, other.make))


@pytest.fixture
def model(checkpoint):
    return str(checkpoint("llama"))


@pytest.fixture
def adapters(llama, tmp_path):
    """Flags that name two: of a tuning on lines, and of one on the other task."""
    for seed, name in enumerate(("lines", "other")):
        made = tiny.adapter_of(llama, seed=seed + 3, settings={"task": [f"{name}:2"]})
        made.save(tmp_path / "runs" / name / "adapter")
    return ["--adapter", "runs/lines/adapter", "--adapter", "runs/other/adapter"]


def called(capfd, *arguments):
    code, out, err = tiny.outcome(capfd, "evaluate", *arguments)
    assert code == 0, err
    return " ".join(out.replace("│", " ").split())


def refused(capfd, *arguments):
    code, _, err = tiny.outcome(capfd, "evaluate", *arguments)
    assert code == 2
    assert err.count("\n") == 1
    return err


def shown(text):
    """What is printed below the bars, which hold times."""
    return text[text.index("mean score at") :]


def logged(folder):
    lines = Path(folder, "results.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["event"] == "case"]


def test_the_matrix_has_the_base_and_every_adapter(capfd, model, adapters, llama):
    text = called(capfd, model, *adapters, "--task", "lines,other", *FLAGS, "--out", "out")
    config = EvaluateConfig(task=("lines", "other"), lengths=(720,), samples=4, questions=2)
    rows = {v: [] for v in ("base", "lines", "other")}
    for row in logged("out"):
        rows[row["variant"]].append(row["scores"]["last"])
    assert all(len(scores) == 8 for scores in rows.values())
    expected = evaluate(llama, [tiny.Chance(), Other()], config)
    assert rows["base"] == [case.value for case in expected.cases]
    means = {v: (sum(s[:4]) / 4, sum(s[4:]) / 4) for v, s in rows.items()}
    first, second = means["base"]
    assert f"base {first:.2f} {second:.2f}" in text
    for variant, marks in (("lines", ("*", "")), ("other", ("", "*"))):
        a, b = means[variant]
        cells = (f"{a:.2f} {a - first:+.2f}{marks[0]}", f"{b:.2f} {b - second:+.2f}{marks[1]}")
        assert f"{variant} {cells[0]} {cells[1]}" in text
    assert "lines, all together:" in text
    assert "Each p is its own" in text
    assert json.loads(Path("out/config.json").read_text())["adapter"] == [
        {"name": "lines", "path": "runs/lines/adapter", "tasks": ["lines"]},
        {"name": "other", "path": "runs/other/adapter", "tasks": ["other"]},
    ]


def test_the_report_of_it_has_the_matrix(capfd, model, adapters):
    called(capfd, model, *adapters, "--task", "lines,other", *FLAGS, "--out", "out")
    assert tiny.outcome(capfd, "report", "out")[0] == 0
    assert "Every adapter on every task" in Path("out/report.html").read_text("utf-8")


def test_every_adapter_answers_as_it_does_alone(capfd, model, adapters):
    called(capfd, model, *adapters, *FLAGS, "--out", "both")
    called(capfd, model, *adapters[2:], *FLAGS, "--base", "--out", "one")
    both, one = logged("both"), logged("one")

    def said(rows, variant):
        return [row["prediction"] for row in rows if row["variant"] == variant]

    assert said(both, "base") == said(one, "base")
    assert said(both, "other") == said(one, "tuned") != said(both, "lines") != said(both, "base")


def test_the_model_is_loaded_once_and_each_task_s_samples_made_once(
    capfd, model, adapters, monkeypatch
):
    module = import_module("longseal.evaluation.evaluate")
    calls = []
    for owner, name in ((loading, "load"), (module, "plan")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, real=real, name=name: calls.append(name) or real(*a)
        )
    called(capfd, model, *adapters, "--task", "lines,other", *FLAGS)
    assert sorted(calls) == ["load", "plan", "plan"]


def test_an_interrupted_matrix_goes_on_where_it_stopped(capfd, model, adapters):
    command = (model, *adapters, "--task", "lines,other", *FLAGS, "--out", "out")
    whole = called(capfd, *command)
    path = Path("out/results.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:8]))
    kept = {row["key"] for row in logged("out")}
    assert shown(called(capfd, *command, "--resume")) == shown(whole)
    keys = [(row["variant"], row["key"]) for row in logged("out")]
    assert len(keys) == len(set(keys)) == 24
    assert kept < {key for _, key in keys}


def test_other_adapters_are_no_resumption(capfd, model, adapters):
    called(capfd, model, *adapters, *FLAGS, "--out", "out")
    line = refused(capfd, model, *adapters[:2], *FLAGS, "--out", "out", "--resume")
    assert "cannot be resumed with other settings: adapter was" in line


def test_a_dry_run_counts_every_model(capfd, model, adapters):
    text = called(capfd, model, *adapters, "--task", "lines,other", *FLAGS, "--dry-run")
    for stage in ("base, lines", "base, other", "lines, lines", "other, other"):
        assert f"evaluate {stage}" in text


def test_an_adapter_of_another_base_is_refused_before_anything_is_asked(
    capfd, model, adapters, loaded, tmp_path
):
    tiny.adapter_of(loaded("other"), seed=5).save(tmp_path / "foreign")
    line = refused(capfd, model, *adapters, "--adapter", "foreign", *FLAGS, "--out", "out")
    assert "another base" in line
    assert not Path("out").exists()


# Names


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["runs/lines/adapter"], ["tuned"]),
        (["mine=runs/lines/adapter"], ["mine"]),
        (["runs/lines/adapter", "runs/vt/adapter/"], ["lines", "vt"]),
        (["a", "b"], ["a", "b"]),
        (["a/lines/adapter", "b/lines/adapter"], ["a/lines", "b/lines"]),
        (["a/lines/adapter", "both=b/lines/adapter"], ["a/lines", "both"]),
        (["runs/lr=1/adapter", "runs/lr=2/adapter"], ["lr=1", "lr=2"]),
    ],
)
def test_adapters_are_called_by_their_folders(given, names):
    assert list(named(given)) == names


@pytest.mark.parametrize(
    "given",
    [["a", "a"], ["a", "./a"], ["a=x", "a=y"], ["base=x"], ["base/adapter", "b"], ["a=x", "a"]],
)
def test_two_models_of_one_name_are_refused(given):
    with pytest.raises(LongsealError, match="would be the name of two models") as caught:
        named(given)
    assert "\n" not in str(caught.value)


def test_a_folder_with_an_equals_sign_is_a_folder(tmp_path):
    (tmp_path / "a=b").mkdir()
    assert named(["a=b"]) == {"tuned": Path("a=b")}


# From Python


def test_ready_plans_are_asked_as_they_are(llama):
    config = EvaluateConfig(lengths=(720,), samples=4, questions=2)
    ready = plan(tiny.Chance(), Prompts(llama), config, llama.window)
    keys = [case.key for case in evaluate(llama, tiny.Chance(), config).cases]
    for kept in (2, 1):
        found = evaluate(llama, tiny.Chance(), config, plans=[Plan(ready.samples[:kept])])
        assert [case.key for case in found.cases] == keys[: 2 * kept]


def test_variants_come_one_after_the_other(llama, tmp_path):
    adapter = tiny.adapter_of(llama, seed=4)
    config = EvaluateConfig(task=("lines", "other"), lengths=(720,), samples=2, questions=2)
    variants = {"tuned": lambda: adapter.attached(llama), "again": lambda: adapter.attached(llama)}
    log = Log(tmp_path / "results.jsonl")
    found = evaluate_variants(llama, [tiny.Chance(), Other()], config, variants, log=log)
    assert [(c.variant, c.task) for c in found.cases] == [
        (variant, task)
        for variant in ("tuned", "again")
        for task in ("lines", "lines", "other", "other")
    ]
    assert [c.prediction for c in found.cases[:4]] == [c.prediction for c in found.cases[4:]]


# vLLM


@pytest.mark.usefixtures("vllm", "adapters")
def test_vllm_answers_a_folded_model_as_transformers_does(capfd, model, tmp_path):
    fold(model, tmp_path / "runs/lines/adapter", tmp_path / "folded")
    here = called(capfd, "folded", *FLAGS, "--out", "here")
    there = called(capfd, "folded", *FLAGS, "--engine", "vllm", "--out", "there")
    assert [r["prediction"] for r in logged("here")] == [r["prediction"] for r in logged("there")]
    table = here[here.index("accuracy") : here.index("results:")]
    assert table in there
    assert "longseal tune" in here
    assert "longseal tune" not in there
    (engine,) = made
    assert engine.longest == 720
    called(capfd, "folded", *FLAGS, "--engine", "vllm", "--out", "there", "--resume")
    assert len(logged("there")) == 4
    assert [engine.calls for engine in made] == [[4], []]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--adapter", "runs/lines/adapter"], "runs no adapter"),
        (["--dry-run"], "no --dry-run"),
        (["--quantize", "4bit"], "leave --quantize out"),
    ],
)
def test_what_vllm_does_not_do_here_is_refused(capfd, model, adapters, flags, words):
    assert words in refused(capfd, model, *FLAGS, "--engine", "vllm", *flags)


def test_vllm_is_told_a_model(capfd):
    assert "name the (folded) model" in refused(capfd, *FLAGS, "--engine", "vllm")
