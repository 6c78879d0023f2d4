"""`longseal adapter`: what is printed is what the adapter holds; bad input is one line."""

import json
import shlex

import pytest
import tiny
import torch
from peft import IA3Config, get_peft_model
from tiny import outcome

from longseal import Adapter
from longseal.cli import app
from longseal.cli.adapter import adapter as commands
from longseal.scales import Scales


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def folders(llama, tmp_path):
    """Two adapters of one base, and one whose numbers are known."""
    settings = {"length": 2048, "seed": 7, "held_out": 8}
    for i, (name, kind) in enumerate([("lines", "head"), ("needle", "channel")]):
        record = {"task": name, "settings": settings}
        Adapter.of(llama, tiny.random_scales(llama, kind, seed=i), record).save(tmp_path / name)
    known = Scales.zeros("head", llama.sites)
    known.deltas[llama.sites[1].name][4] = 0.5
    known.deltas[llama.sites[2].name][0] = -0.25
    Adapter.of(llama, known, {"task": "lines"}).save(tmp_path / "known")
    return tmp_path


def refused(capfd, *arguments):
    code, out, err = outcome(capfd, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1), (code, out, err)
    assert err.startswith("longseal: ")
    return err


def test_show_prints_what_an_adapter_is(capfd, folders):
    code, out, err = outcome(capfd, "adapter", "show", "lines")
    assert (code, err) == (0, "")
    for fact in ("head, 18 numbers", "3, 6 heads each", "lines", "2048", "7", "longseal", "torch"):
        assert fact in out
    assert "note" not in out


def test_show_gives_the_same_as_json(capfd, folders, llama):
    code, out, err = outcome(capfd, "adapter", "show", "known", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["most_changed"][:2] == [
        {"layer": 1, "head": 4, "scale": 1.5, "change": 0.5},
        {"layer": 2, "head": 0, "scale": 0.75, "change": 0.25},
    ]
    assert (found["smallest"], found["largest"]) == (0.75, 1.5)
    assert found["mean"] == pytest.approx(1 + 0.25 / 18)
    assert (found["kind"], found["count"], found["layers"]) == ("head", 18, 3)
    assert found["heads"] == [6, 6, 6]
    assert found["base"] == llama.source
    assert found["fingerprint"] is True
    assert found["made"]["task"] == "lines"
    assert found["made"]["versions"].keys() == {"longseal", "torch", "transformers"}


def test_show_says_that_peft_alone_wrote_an_adapter(capfd, tmp_path):
    config = IA3Config(target_modules=["o_proj"], feedforward_modules=["o_proj"])
    get_peft_model(tiny.network(tiny.LLAMA), config).save_pretrained(tmp_path / "plain")
    code, out, _ = outcome(capfd, "adapter", "show", "plain")
    assert code == 0
    for fact in ("PEFT", "heads not known", "most changed layers", "note: ", "cannot be checked"):
        assert fact in out
    found = json.loads(outcome(capfd, "adapter", "show", "plain", "--json")[1])
    assert (found["written_by"], found["fingerprint"], found["heads"]) == ("PEFT", False, None)
    assert found["most_changed"][0]["head"] is None


def test_words_in_brackets_are_printed_as_they_are(capfd, llama, tmp_path):
    scales = tiny.random_scales(llama, "head")
    Adapter(scales, "a [red]base[/]", None, {"task": "[bold]"}).save(tmp_path / "[odd]")
    out = outcome(capfd, "adapter", "show", "[odd]")[1]
    for words in ("[odd]", "a [red]base[/]", "[bold]"):
        assert words in out


def test_combine_multiplies_each_at_its_strength(capfd, folders, llama):
    code, out, err = outcome(
        capfd, "adapter", "combine", "lines", "needle:0.5", "known:-1", "--out", "both"
    )
    assert (code, err) == (0, "")
    assert "longseal adapter show both" in out
    lines, needle, known = (Adapter.load(folders / n) for n in ("lines", "needle", "known"))
    both = Adapter.load(folders / "both")
    for site in llama.sites:
        expected = lines.scales.scale(site)
        expected = expected * needle.times(0.5).scales.scale(site)
        expected = expected * known.times(-1).scales.scale(site)
        torch.testing.assert_close(both.scales.scale(site), expected)
    out = outcome(capfd, "adapter", "show", "both")[1]
    for part in ("part at strength 1", "part at strength 0.5", "part at strength -1"):
        assert part in out
    assert "kind channel, task needle" in out


def test_a_folder_with_a_colon_in_its_name_is_a_folder(capfd, folders, llama):
    (folders / "lines").rename(folders / "odd:0.5")
    assert outcome(capfd, "adapter", "combine", "odd:0.5", "--out", "same")[0] == 0
    same, odd = Adapter.load(folders / "same"), Adapter.load(folders / "odd:0.5")
    for name, delta in odd.scales.deltas.items():
        torch.testing.assert_close(same.scales.deltas[name], delta)
    assert "C:/no/adapter does not exist" in refused(
        capfd, "adapter", "combine", "C:/no/adapter", "--out", "x"
    )


def test_what_cannot_be_shown_or_combined_costs_one_line(capfd, folders, loaded):
    assert "nothing does not exist" in refused(capfd, "adapter", "show", "nothing")
    (folders / "empty").mkdir()
    assert "empty is no adapter" in refused(capfd, "adapter", "show", "empty")
    combine = ("adapter", "combine")
    assert "no does not exist" in refused(capfd, *combine, "lines", "no:0.5", "--out", "x")
    assert "finite" in refused(capfd, *combine, "lines:nan", "--out", "x")
    assert "out" in refused(capfd, *combine, "lines", "needle")
    refused(capfd, *combine, "--out", "x")
    foreign = loaded("other")
    Adapter.of(foreign, tiny.random_scales(foreign, "head"), {}).save(folders / "foreign")
    assert "different bases" in refused(capfd, *combine, "lines", "foreign", "--out", "x")
    assert not (folders / "x").exists()


def test_an_out_that_holds_something_else_is_left_alone(capfd, folders):
    (folders / "mine").mkdir()
    (folders / "mine" / "precious").write_text("x")
    assert "no adapter" in refused(capfd, "adapter", "combine", "lines", "--out", "mine")
    assert [path.name for path in (folders / "mine").iterdir()] == ["precious"]
    assert outcome(capfd, "adapter", "combine", "needle", "--out", "lines")[0] == 0  # is replaced
    assert Adapter.load(folders / "lines").kind == "channel"


def test_every_example_of_help_parses():
    texts = [commands[name].help for name in ("show", "combine")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    examples = [line for line in lines if line.startswith("longseal ")]
    assert len(examples) == 3
    for example in examples:
        words = shlex.split(example)[1:]
        function, _, _ = app.parse_args(words, print_error=False, exit_on_error=False)
        assert function.__name__ == words[1]
