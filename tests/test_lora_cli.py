"""The commands take a LoRA or DoRA adapter where they take scales, or say why not."""

import json
from pathlib import Path

import pytest
import tiny
from low_rank import adapter_of
from tiny import outcome

import longseal
from longseal.lora import read_adapter
from longseal.tasks.registry import FAMILIES


@pytest.fixture(autouse=True)
def _in_a_folder_with_adapters(tmp_path, monkeypatch, llama):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    adapter_of(llama, "dora").save(tmp_path / "dora")
    tiny.adapter_of(llama, 0).save(tmp_path / "scales")


def test_show_says_what_it_is(capfd, llama):
    code, out, err = outcome(capfd, "adapter", "show", "dora")
    assert (code, err) == (0, "")
    for fact in ("dora, ", "4 and 8", "12: queries, keys, values", "lines", "peft", "most changed"):
        assert fact in out
    found = json.loads(outcome(capfd, "adapter", "show", "dora", "--json")[1])
    adapter = read_adapter("dora")
    assert (found["kind"], found["count"], found["modules"]) == ("dora", adapter.count, 12)
    updates, first = adapter.updates, found["most_changed"][0]
    down, up = (updates.of(first["module"])[f".lora_{part}.weight"] for part in "AB")
    assert first["change"] == pytest.approx(float((2 * up @ down).norm()), rel=1e-5)
    assert first["change"] == max(updates.change(module) for module in updates.modules)


def test_it_is_not_multiplied_with_scales(capfd):
    for given in (["dora"], ["scales", "dora:0.5"]):
        code, out, err = outcome(capfd, "adapter", "combine", *given, "--out", "both")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "dora is a dora adapter: only scales" in err


def test_it_has_no_scales_to_probe(capfd, checkpoint):
    code, out, err = outcome(capfd, "probe", str(checkpoint("llama")), "--adapter", "dora")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "dora holds no scales" in err


def test_it_is_folded(capfd, checkpoint, tmp_path):
    base = str(checkpoint("llama"))
    code, out, err = outcome(capfd, "fold", base, "dora", "sealed", "--check")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "dora merged by PEFT into all query, key, value and output projections" in text
    assert longseal.Folded.read(tmp_path / "sealed").projection is None
    code, _, err = outcome(capfd, "fold", base, "dora", "again", "--projection", "value")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "leave --projection" in err


def test_it_is_evaluated(capfd, monkeypatch, checkpoint):
    monkeypatch.setitem(FAMILIES, "lines", tiny.family(tiny.ShortLines))
    command = ("evaluate", str(checkpoint("llama")), "--lengths", "900", "--samples", "1")
    code, _, err = outcome(capfd, *command, "--adapter", "dora", "--base", "--out", "found")
    assert (code, err) == (0, "")
    lines = Path("found", "results.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    cases = {r["variant"]: r for r in records if "variant" in r}
    assert cases.keys() == {"base", "tuned"}
    assert cases["base"]["key"] != cases["tuned"]["key"]
