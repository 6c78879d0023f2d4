"""Probing from end to end on tiny models."""

import json
from statistics import mean

import pytest
import tiny

import longseal
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.models.sites import Head
from longseal.probing import Probe, probe
from longseal.probing.audit import agreement, choose
from longseal.probing.direct import direct_effect
from longseal.probing.heads import pruned
from longseal.report.look import save_chart
from longseal.report.probing import (
    bars_chart,
    direct_chart,
    influence_chart,
    quadrants_chart,
    trust_chart,
)
from longseal.tasks import Wanted
from longseal.tasks.lines import LinesFile
from longseal.tasks.prompt import Prompts

SMALL = {"lengths": (600, 800), "samples": 3, "questions": 2}


@pytest.fixture(scope="module")
def exact(loaded):
    return probe(loaded("llama"), tiny.Chance(), method="exact", **SMALL)


def test_exact_finds_every_head_at_every_length(exact):
    assert len(exact.of("exact")) == 2 * 18
    assert {each.name for each in exact.of("exact", 600)} == {
        f"L{layer}H{head}" for layer in range(3) for head in range(6)
    }
    for each in exact.influences:
        assert each.questions == 3
        assert each.low < each.change < each.high
    assert [base.length for base in exact.base] == [600, 800]


def test_accuracy_is_that_of_free_answers(exact, loaded):
    """A pruned head's scores, by attaching it and asking."""
    assert any(each.accuracy for each in exact.influences)
    assert exact.base[0].accuracy is not None


def test_gradient_estimates_all(loaded, exact):
    found = probe(loaded("llama"), tiny.Chance(), method="gradient", **SMALL)
    assert len(found.influences) == 2 * 18
    known = {(each.length, each.name): each.change for each in exact.influences}
    pairs = [(each.change, known[each.length, each.name]) for each in found.influences]
    assert agreement(600, "audited", *zip(*pairs, strict=True)).rank > 0.4


def test_audit_confirms_both_ends_and_some_at_random(loaded, exact):
    found = probe(loaded("llama"), tiny.Chance(), method="audit", ends=2, drawn=5, **SMALL)
    assert len(found.of("gradient")) == 36
    audited = found.of("exact", 600)
    assert len(audited) == 9
    known = {(each.length, each.name): each for each in exact.influences}
    for each in found.of("exact"):
        same = known[each.length, each.name]
        assert each.change == pytest.approx(same.change, abs=1e-5)
        assert each.accuracy == same.accuracy
    guesses = {
        name: mean(each.change for each in found.of("gradient") if each.name == name)
        for name in {each.name for each in found.of("gradient")}
    }
    ranked = sorted(guesses, key=guesses.get)
    assert {*ranked[:2], *ranked[-2:]} <= {each.name for each in audited}
    assert [(trust.length, trust.among, trust.heads) for trust in found.trust] == [
        (600, "audited", 9),
        (600, "random", 5),
        (800, "audited", 9),
        (800, "random", 5),
    ]
    for trust in found.trust:
        assert trust.rank_interval[0] <= trust.rank <= trust.rank_interval[1]
        assert trust.same_sign_interval[0] <= trust.same_sign <= trust.same_sign_interval[1]


def test_groups_and_their_estimates(loaded, exact):
    model = loaded("llama")
    groups = ("L1H2,L0H5", "L2", "L0G1")
    found = probe(model, tiny.Chance(), method="audit", prune=groups, **SMALL)
    assert [each.name for each in found.of("exact", 600)] == list(groups)
    single = probe(model, tiny.Chance(), method="gradient", **SMALL)
    parts = {each.name: each.change for each in single.of("gradient", 600)}
    guesses = {each.name: each.change for each in found.of("gradient", 600)}
    assert guesses["L1H2,L0H5"] == pytest.approx(parts["L1H2"] + parts["L0H5"], rel=1e-5)
    whole = sum(parts[f"L2H{head}"] for head in range(6))
    assert guesses["L2"] == pytest.approx(whole, rel=1e-5)


def test_channels_of_a_head_add_up_to_it(loaded):
    model = loaded("llama")
    found = probe(model, tiny.Chance(), method="exact", channels="L1H3", **SMALL)
    assert len(found.of("exact", 600)) == len(found.of("gradient", 600)) == 12
    head = probe(model, tiny.Chance(), method="gradient", **SMALL)
    whole = next(each.change for each in head.of("gradient", 600) if each.name == "L1H3")
    assert sum(each.change for each in found.of("gradient", 600)) == pytest.approx(whole, rel=1e-4)


def test_what_the_log_holds_is_not_run_again(loaded, exact, tmp_path, monkeypatch):
    log = Log(tmp_path / "log.jsonl")
    first = probe(loaded("llama"), tiny.Chance(), method="exact", log=log, **SMALL)
    assert first == exact
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join(lines[: len(lines) // 2]) + '{"event": "probed", "wha')
    kept = Log(log.path)
    again = probe(loaded("llama"), tiny.Chance(), method="exact", log=kept, **SMALL)
    assert again.influences == first.influences
    assert len(log.path.read_text().splitlines()) == len(lines)
    monkeypatch.setattr("longseal.probing.pruning.Pruning.of", None)
    whole = probe(loaded("llama"), tiny.Chance(), method="exact", log=Log(log.path), **SMALL)
    assert whole.influences == first.influences


def test_a_file_s_samples_are_probed_as_they_are(loaded):
    """Pruned one by one, they change as samples that are made do."""
    sizes = (14, 20)
    samples = [tiny.ShortLines().sample(Wanted(size, 1, f"file/{size}")) for size in sizes]
    task, model = LinesFile("mine", samples), loaded("llama")
    found = probe(model, task, method="exact", prune=("L1H2",), samples=5)
    encoded = [Prompts(model).encode(sample) for sample in samples]
    (only,) = found.influences
    assert only.questions == 2
    assert only.length == max(each.length for each in encoded)
    (base,) = found.base
    with pruned([Head(1, 2)], model.sites).attached(model.network):
        (without,) = probe(model, task, method="gradient", samples=5).base
    change = without.log_probability - base.log_probability
    assert only.change == pytest.approx(change, rel=1e-4)
    with pytest.raises(LongsealError, match="as long as they are"):
        probe(model, task, quadrants=True)


def test_a_model_that_answers_nothing_right(loaded):
    class Never(tiny.ShortLines):
        def score(self, prediction, question):
            return dict.fromkeys(("last", "first", "contains"), 0.0)

    found = probe(loaded("llama"), Never(), method="exact", **SMALL)
    assert "flat" in found.notes[0]
    assert all(each.accuracy is None for each in found.influences)


def test_an_audit_that_does_not_hold_says_so(loaded, monkeypatch):
    monkeypatch.setattr(
        "longseal.probing.measure.slopes",
        lambda model, encoded: {s.name: tiny.torch.randn(6, 12) for s in model.sites},
    )
    tiny.torch.manual_seed(0)
    found = probe(loaded("llama"), tiny.Chance(), method="audit", **SMALL)
    assert any("trust the exact figures alone" in note for note in found.notes)


def test_choice_of_an_audit():
    heads = {Head(0, i): float(i) for i in range(10)}
    chosen = choose(heads, 2, 3, 0)
    assert chosen.ends == (Head(0, 0), Head(0, 1), Head(0, 8), Head(0, 9))
    assert len(set(chosen.all)) == 7
    assert choose(heads, 2, 3, 0) == chosen
    assert {choose(heads, 2, 3, seed).drawn for seed in range(9)} != {chosen.drawn}
    assert len(choose(heads, 50, 50, 0).all) == 10


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prune": ("L9H0",)}, "L0 to L2"),
        ({"channels": "L1"}, "one head"),
        ({"channels": "L1H0", "prune": ("L1H1",)}, "leave --prune out"),
        ({"lengths": (8192,)}, "window of 4096"),
    ],
)
def test_bad_input(loaded, fields, said):
    with pytest.raises(LongsealError, match=said):
        probe(loaded("llama"), tiny.Chance(), **(SMALL | fields))


def test_command(capfd, checkpoint, tmp_path):
    out = tmp_path / "heads"
    command = ("probe", str(checkpoint("llama")), "--lengths", "800", "--samples", "2")
    command += ("--questions", "2", "--ends", "2", "--drawn", "3", "--out", str(out))
    code, shown, _ = tiny.outcome(capfd, *command)
    assert code == 0
    assert "rank correlation" in shown
    assert "800 tokens" in shown
    lines = Log(out / "results.jsonl").read(event="probed")
    assert lines
    page = (out / "report.html").read_text()
    assert "What becomes of the right answers, at 800 tokens" in page
    assert "How far the estimate holds" in page
    assert "helps most" in page
    code, again, _ = tiny.outcome(capfd, *command, "--resume")
    assert code == 0
    assert "rank correlation" in again
    assert Log(out / "results.jsonl").read(event="probed") == lines


def test_results_as_json_and_back(exact, loaded):
    assert Probe.from_json(json.loads(json.dumps(exact.to_json()))) == exact
    parted = probe(loaded("llama"), tiny.Chance(), method="gradient", quadrants=True, **SMALL)
    assert Probe.from_json(json.loads(json.dumps(parted.to_json()))) == parted


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_each_chart_in_each_format(exact, loaded, tmp_path, suffix):
    model = loaded("llama")
    audit = probe(model, tiny.Chance(), quadrants=True, rescale=(), ends=2, drawn=4, **SMALL)
    effect = direct_effect(model, tiny.tokens(20), 20, 30)
    drawn = [
        influence_chart(exact.of("exact", 600)),
        bars_chart(exact.of("exact", 600)[:5]),
        quadrants_chart(audit.best_known, audit.quadrants),
        trust_chart(audit.of("gradient"), audit.of("exact"), audit.trust),
        direct_chart({"as it is": effect.contributions}),
    ]
    for number, chart in enumerate(drawn):
        path = tmp_path / f"{number}{suffix}"
        save_chart(chart, path)
        assert path.stat().st_size > 1000
        if suffix == ".svg":
            assert "L0H" in path.read_text()


def test_public():
    assert longseal.probe is probe
