"""The command folds files, says what it did, and loads a model only where that is needed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import folding
import pytest
import torch

import longseal
from longseal import fold
from longseal.cli import main
from longseal.report import report
from longseal.scales import Adapter

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "fold.py"


@pytest.fixture
def place(tmp_path, llama, monkeypatch):
    folding.adapter_of(llama).save(tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["fold", *map(str, arguments)])
    return left.value.code


def test_a_folder_is_folded_without_loading_it(place, checkpoint, capfd, monkeypatch):
    monkeypatch.setattr("longseal.models.load.AutoModelForCausalLM", None)
    assert run(checkpoint("llama"), "adapter", "sealed") == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "folded into the output projections; rounding: at most 0.0e+00" in text
    assert "logits" not in text
    assert "longseal evaluate sealed" in text


def test_the_check_is_a_flag(place, checkpoint, capfd):
    assert run(checkpoint("llama"), "adapter", "sealed", "--check") == 0
    assert "difference between folded and hooked logits" in " ".join(capfd.readouterr().out.split())
    assert longseal.Folded.read(place / "sealed").logit_difference < 1e-4


def test_values_that_cannot_be_scaled_are_refused(place, checkpoint, capfd):
    assert run(checkpoint("llama"), "adapter", "sealed", "--projection", "value") == 2
    assert "layer 0: heads 0 and 1 share a value head and have unequal scales" in " ".join(
        capfd.readouterr().err.split()
    )
    assert {path.name for path in place.iterdir()} == {"adapter"}


def test_an_adapter_whose_base_is_not_known_is_folded_with_a_note(place, checkpoint, llama, capfd):
    adapter = folding.adapter_of(llama)
    Adapter(adapter.scales, "", None).save(place / "unknown")
    assert run(checkpoint("llama"), "unknown", "sealed") == 0
    assert "note: " in capfd.readouterr().out


def test_a_gguf_is_written_as_an_ordinary_checkpoint(place, llama, checkpoint):
    """A loaded model without a folder of its own: as a GGUF's is, once it is loaded."""
    (place / "model.gguf").write_bytes(b"")
    model = replace(llama, source=str(place / "model.gguf"))
    adapter = folding.adapter_of(llama)
    folded = fold(model, adapter, place / "target")
    assert folded.logit_difference < 1e-4
    base, after = folding.tensors(checkpoint("llama")), folding.tensors(place / "target")
    assert base.keys() == after.keys()
    changed = {name for name in base if not torch.equal(base[name], after[name])}
    assert changed == {site.weight for site in adapter.scales.sites}


@pytest.mark.parametrize("difference", ["null", "0.00021"])
def test_the_report_shows_the_rounding(tmp_path, difference):
    figures = '"rounding": 0.0022, "rounding_rms": 0.00096, "projection": "value"'
    (tmp_path / "results.jsonl").write_text(
        '{"event": "step", "step": 1, "loss": 0.5, "tokens": 9}\n'
        f'{{"event": "fold", "logit_difference": {difference}, {figures}}}\n'
    )
    page = " ".join(report(tmp_path).read_text().split())
    assert "at most 0.0022 of a tensor’s largest weight; in root mean square 0.00096" in page
    assert "stand in the value projections" in page
    assert ("0.00021</b>" in page) is (difference != "null")


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    command = [sys.executable, BENCHMARK, "--size", "0.05", "--rounds", "1", "--place", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "fold / copy" in done.stdout
    assert not any(tmp_path.iterdir())
