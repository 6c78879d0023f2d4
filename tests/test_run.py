"""One run does the whole job, leaves everything in one folder, and survives being killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

import longseal
from longseal import Adapter, RunConfig
from longseal.cli import main
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.run_folder import RunFolder
from longseal.tasks.registry import FAMILIES

CONFIG = RunConfig(
    lengths=(820, 900), samples=5, train_samples=24, train_length=760, guard=None, seed=10
)
FLAGS = [
    "--lengths=820,900",
    "--samples=5",
    "--train-samples=24",
    "--train-length=760",
    "--guard=off",
    "--seed=10",
]
DRIVER = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
import tiny
from longseal.tasks.registry import FAMILIES
FAMILIES["lines"] = tiny.family(tiny.Chance)
from longseal.cli import main
main()
"""


@pytest.fixture(autouse=True)
def _quick_answers(monkeypatch):
    monkeypatch.setitem(FAMILIES, "lines", tiny.family(tiny.Chance))


@pytest.fixture(scope="module")
def whole(llama, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "lines", tiny.family(tiny.Chance))
        return longseal.run(llama, folder, CONFIG)


@pytest.fixture
def copy(whole, tmp_path):
    """The run's folder, to be spoilt."""
    return shutil.copytree(whole.folder.path, tmp_path / "run")


def cases(folder):
    """Every case, with its place as the key; none may stand there twice."""
    records = Log(folder / "results.jsonl").read(event="case")
    found = {(r["variant"], r["length"], r["context"], r["question"]): r for r in records}
    assert len(found) == len(records)
    for record in records:
        del record["seconds"]
    return found


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_base_that_cannot_be_folded_into_is_refused_before_anything_is_learned(
    checkpoint, tmp_path
):
    base = shutil.copytree(checkpoint("llama"), tmp_path / "base")
    model = longseal.load(base, device="cpu")
    (base / "consolidated.safetensors").write_bytes(b"")
    with pytest.raises(LongsealError, match="would stay unfolded"):
        longseal.run(model, tmp_path / "run", CONFIG)
    assert not (tmp_path / "run").exists()


def test_a_run_leaves_the_folder_that_the_readme_shows(whole):
    folder = whole.folder.path
    made = {"config.json", "results.jsonl", "adapter", "model", "report.html", "steps"}
    assert {path.name for path in folder.iterdir()} == made
    config = json.loads((folder / "config.json").read_text())
    assert RunConfig(**{name: config[name] for name in RunConfig.model_fields}) == CONFIG
    assert "</html>" in (folder / "report.html").read_text()
    assert Adapter.load(folder / "adapter").record["settings"]["seed"] == 10


def test_every_question_is_asked_of_base_tuned_and_folded(whole):
    found = cases(whole.folder.path)
    assert len(found) == 3 * 2 * 5
    for (variant, *place), record in found.items():
        assert record["expected"] == found["base", *place]["expected"]
        assert variant in ("base", "tuned", "folded")
    told = {(a.variant, a.length): (a.correct, a.total) for a in whole.accuracy}
    for (variant, length), (correct, total) in told.items():
        scores = [
            record["scores"]["last"]
            for (v, n, *_), record in found.items()
            if (v, n) == (variant, length)
        ]
        assert (sum(scores), len(scores)) == (correct, total)
    assert len(told) == 6


def test_the_folded_model_loads_as_any_other_and_is_the_tuned_one(whole, llama):
    row = torch.tensor([tiny.tokens(60)])
    network = AutoModelForCausalLM.from_pretrained(whole.folder.model)
    with whole.adapter.attached(llama):
        expected = llama.network(input_ids=row).logits
    torch.testing.assert_close(network(input_ids=row).logits, expected, rtol=1e-5, atol=1e-5)
    folded = [r["prediction"] for (v, *_), r in cases(whole.folder.path).items() if v == "folded"]
    tuned = [r["prediction"] for (v, *_), r in cases(whole.folder.path).items() if v == "tuned"]
    assert folded == tuned


def test_the_log_tells_every_stage_and_the_session(whole):
    log = Log(whole.folder.path / "results.jsonl")
    stages = [record["stage"] for record in log.read(event="stage")]
    assert stages == ["evaluate base", "tune", "evaluate tuned", "fold", "evaluate folded"]
    (session,) = log.read(event="session")
    assert {"python", "torch", "transformers", "peft", "longseal"} <= session["versions"].keys()


def test_a_finished_run_that_is_resumed_does_nothing_again(whole, llama, copy):
    before = contents(copy)
    ran = []
    hook = llama.network.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        again = longseal.run(llama, copy, CONFIG, resume=True)
    finally:
        hook.remove()
    assert not ran
    assert again.accuracy == whole.accuracy
    after = contents(copy)
    kept = [name for name in before if name not in ("results.jsonl", "report.html")]
    assert all(after[name] == before[name] for name in kept)
    assert cases(copy) == cases(whole.folder.path)


def test_a_run_that_is_killed_ends_as_one_that_was_not(whole, llama, tmp_path):
    out = tmp_path / "run"
    command = ["run", str(llama.source), *FLAGS, "--device", "cpu", "--out", str(out)]
    driver = DRIVER.format(tests=str(Path(__file__).parent))
    process = subprocess.Popen(
        [sys.executable, "-c", driver, *command],
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = monotonic() + 120
    while not (out / "steps" / "step-0001.safetensors").exists():
        assert process.poll() is None, "it ended before it could be killed"
        assert monotonic() < deadline
        sleep(0.005)
    process.kill()
    assert process.wait() == -9
    assert len(cases(out)) == 10
    assert not (out / "adapter").exists()

    with pytest.raises(SystemExit, match=r"^0$"):
        main([*command, "--resume"])

    assert cases(out) == cases(whole.folder.path)
    ours, theirs = contents(out), contents(whole.folder.path)
    exact = [
        name
        for name in theirs
        if name.startswith("steps/") or name.endswith((".safetensors", "config.json"))
    ]
    assert "adapter/adapter_model.safetensors" in exact
    assert "steps/step-0003.safetensors" in exact
    for name in exact:
        assert ours[name] == theirs[name], name
    assert ours.keys() == theirs.keys()


# Taken folders


@pytest.mark.parametrize(
    ("setting", "value", "match"),
    [
        ("samples", 6, "samples was 5 and is 6"),
        ("seed", 7, "seed was 10 and is 7"),
        ("kind", "head", "kind was channel and is head"),
        ("lengths", (820,), "lengths was"),
        ("train_length", 750, "train_length was 760 and is 750"),
    ],
)
def test_a_run_of_other_settings_is_not_resumed(whole, llama, copy, setting, value, match):
    before = contents(copy)
    other = CONFIG.model_copy(update={setting: value})
    with pytest.raises(LongsealError, match=match):
        longseal.run(llama, copy, other, resume=True)
    assert contents(copy) == before


def test_a_run_of_another_model_or_dtype_is_not_resumed(checkpoint, loaded, copy):
    before = contents(copy)
    with pytest.raises(LongsealError, match="model was"):
        longseal.run(loaded("untied"), copy, CONFIG, resume=True)
    half = longseal.load(checkpoint("llama"), dtype="bfloat16", device="cpu")
    with pytest.raises(LongsealError, match="dtype was float32 and is bfloat16"):
        longseal.run(half, copy, CONFIG, resume=True)
    assert contents(copy) == before


def test_a_run_is_not_written_over_unasked(llama, copy):
    before = contents(copy)
    with pytest.raises(LongsealError, match="holds a run already"):
        longseal.run(llama, copy, CONFIG)
    assert contents(copy) == before


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}])
def test_a_folder_of_other_things_is_refused_whatever_is_asked(llama, tmp_path, flags):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(LongsealError, match="no run"):
        longseal.run(llama, tmp_path, CONFIG, **flags)
    assert contents(tmp_path) == {"precious.txt": b"x"}


def test_an_empty_folder_may_be_used(llama, tmp_path):
    folder = RunFolder.open(tmp_path, llama, CONFIG)
    assert folder.path == tmp_path
    assert (tmp_path / "config.json").is_file()


def test_overwriting_throws_the_run_away_and_leaves_other_files_alone(llama, copy):
    (copy / "notes.txt").write_text("mine")
    (copy / "figures").mkdir()
    (copy / "figures" / "one.png").write_bytes(b"png")
    other = CONFIG.model_copy(update={"seed": 7})
    RunFolder.open(copy, llama, other, overwrite=True)
    left = {"config.json", "results.jsonl", "notes.txt", "figures/one.png"}
    assert contents(copy).keys() == left
    assert json.loads((copy / "config.json").read_text())["seed"] == 7
    assert not Log(copy / "results.jsonl").read(event="case")


def test_a_length_that_cannot_be_is_refused_before_anything_is_made(llama, tmp_path):
    for lengths in [(820, 5000), (100, 820)]:
        with pytest.raises(LongsealError, match=r"5000 is beyond|100 is too short"):
            longseal.run(llama, tmp_path / "run", CONFIG.model_copy(update={"lengths": lengths}))
    assert not (tmp_path / "run").exists()
