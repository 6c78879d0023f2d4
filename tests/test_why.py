"""Why heads matter: where they look, what tuning made of them, and a case that it solved."""

import json
from dataclasses import replace

import pytest
import tiny
import torch

from longseal.errors import LongsealError
from longseal.files import Log
from longseal.intervals import rank_correlation
from longseal.probing import Probe, probe
from longseal.probing.answers import Asking
from longseal.probing.case import case_of, places_of
from longseal.scales import Adapter
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import Prompts

SMALL = {"lengths": (600, 800), "samples": 4, "questions": 2}


class Starts(tiny.ShortLines):
    """An answer is right where it starts as this model's with these scales does."""

    def __init__(self):
        super().__init__()
        self.right = {}

    def score(self, prediction, question):
        good = float(self.right.get(question.text) == prediction)
        return dict.fromkeys(("last", "first", "contains"), good)


@pytest.fixture(scope="module")
def model(loaded):
    return loaded("llama")


@pytest.fixture(scope="module")
def adapter(model):
    return Adapter.of(model, tiny.random_scales(model, "channel"), {})


@pytest.fixture(scope="module")
def task(model, adapter):
    """Only the tuned model's answer to the second context's first question is right."""
    task = Starts()
    prompts = Prompts(model)
    asking = Asking(model, task, prompts)
    encoded = fit(prompts, task, 800, 2, f"probe/0/{task.name}/800/1").only([0])
    with adapter.attached(model):
        text, _ = prompts.decode(asking.tokens(encoded))
    task.right = {encoded.source.questions[0].text: text}
    return task


@pytest.fixture(scope="module")
def found(model, adapter, task):
    return probe(model, task, method="gradient", looks=True, adapter=adapter, **SMALL)


def test_the_case_is_found(found, task, model, adapter):
    case = found.tuned.case
    assert case.length == 800
    assert case.question in task.right
    assert case.right == task.right[case.question]
    assert case.wrong != case.right
    assert case.right.startswith(case.before + case.token)
    assert case.base.difference < 0  # the base prefers its own token
    assert case.tuned.difference > case.base.difference


def test_the_case_s_parts_add_up_on_either_side(found, model, adapter):
    case = found.tuned.case
    for side in (case.base, case.tuned):
        assert sum(part.value for part in side.contributions) == pytest.approx(
            side.difference, rel=1e-3, abs=1e-3
        )
    change = case.tuned.difference - case.base.difference
    assert sum(part.value for part in case.difference) == pytest.approx(change, rel=1e-3, abs=1e-3)
    sizes = [abs(part.value) for part in case.difference]
    assert sizes == sorted(sizes, reverse=True)


def test_the_case_s_logits_are_the_models_own(model, adapter, task):
    prompts = Prompts(model)
    encoded = fit(prompts, task, 800, 2, f"probe/0/{task.name}/800/1").only([0])
    asking = Asking(model, task, prompts)
    case = case_of(asking, encoded, 800, lambda: adapter.attached(model))
    token, other = case.base.token, case.base.other
    with adapter.attached(model):
        answer = asking.tokens(encoded)
    place = next(
        place
        for place, each in enumerate(answer)
        if each == token and prompts.text(answer[:place]) == case.before
    )
    row = torch.tensor([[*encoded.prompt(0), *answer[:place]]])
    with torch.no_grad():
        logits = model.network(input_ids=row).logits[0, -1]
        with adapter.attached(model):
            tuned = model.network(input_ids=row).logits[0, -1]
    assert logits.argmax() == other
    assert tuned.argmax() == token
    assert (logits[token] - logits[other]).item() == pytest.approx(case.base.difference, abs=1e-3)
    assert (tuned[token] - tuned[other]).item() == pytest.approx(case.tuned.difference, abs=1e-3)


def test_what_was_asked_for_is_found_in_an_answer():
    def text(tokens):
        return "".join(tokens)

    answer = ["It", " is", ":", " <", "12", "34", ">"]
    assert places_of(("99", "1234"), answer, text) == range(4, 6)
    assert places_of(("It",), answer, text) == range(1)
    assert places_of(("234>",), answer, text) == range(4, 7)
    assert not places_of(("5",), answer, text)


def test_learned_scales_are_the_means_of_channels(found, adapter, model):
    assert len(found.tuned.scales) == 18
    site = model.sites[1]
    mean = adapter.scales.scale(site).view(site.n_heads, -1)[4].mean().item()
    assert found.tuned.scales[f"L{site.layer}H4"] == pytest.approx(mean)


def test_answers_with_the_adapter_are_told(found):
    assert [each.accuracy for each in found.base] == [0.0, 0.0]
    assert [each.accuracy for each in found.tuned.answered] == [0.0, 0.25]
    low, high = found.tuned.answered[1].interval
    assert low < 0.25 < high
    assert found.base[0].log_probability != found.tuned.answered[0].log_probability


def test_each_correlation_has_its_interval(found):
    assert {(each.length, each.one, each.other) for each in found.relations} >= {
        (600, "influence", "distance"),
        (800, "influence", "scale"),
        (800, "scale", "first"),
    }
    for each in found.relations:
        assert each.heads == 18
        assert each.interval[0] < each.rank < each.interval[1]
    looks = {str(look.head): look for look in found.looks[1].heads}
    pairs = [(each.change, looks[each.name].distance) for each in found.of("gradient", 800)]
    rank, _ = rank_correlation(*zip(*pairs, strict=True))
    (mine,) = [
        r for r in found.relations if (r.length, r.one, r.other) == (800, "influence", "distance")
    ]
    assert mine.rank == rank


def test_the_evidence_is_where_it_stands(model):
    prompts, task = Prompts(model), tiny.ShortLines()
    encoded = fit(prompts, task, 600, 2, "evidence")
    for number, question in enumerate(encoded.source.questions):
        start, end = prompts.evidence(encoded.source, question)
        assert prompts.text(encoded.prompt(number)[start:end]) == question.evidence.strip()


def test_json_and_back(found):
    assert Probe.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_what_the_log_holds_is_not_looked_at_again(model, adapter, task, tmp_path, monkeypatch):
    log = Log(tmp_path / "log.jsonl")
    settings = {"method": "gradient", "looks": True, "adapter": adapter, **SMALL}
    first = probe(model, task, log=log, **settings)
    lines = log.path.read_text()
    monkeypatch.setattr("longseal.probing.measure.looks", None)
    monkeypatch.setattr("longseal.probing.pruning.Pruning.base", None)
    again = probe(model, task, log=Log(log.path), **settings)
    assert without_case(again) == without_case(first)
    assert again.tuned.case.right == first.tuned.case.right
    assert log.path.read_text() == lines


def without_case(found):
    """All but what is run again: a single row, whose last digits may differ."""
    return replace(found, tuned=replace(found.tuned, case=None))


def test_without_a_case_it_says_so(model, adapter):
    found = probe(model, Starts(), method="gradient", adapter=adapter, **SMALL)
    assert found.tuned.case is None
    assert any("no question is answered better" in note for note in found.notes)


def test_a_model_that_shows_no_attention_is_probed_all_the_same(model, monkeypatch):
    def refuse(*_):
        raise LongsealError("what heads attend to cannot be seen")

    monkeypatch.setattr("longseal.probing.measure.looks", refuse)
    found = probe(model, tiny.Chance(), method="gradient", looks=True, **SMALL)
    assert not found.looks
    assert len(found.influences) == 36
    assert any("cannot be seen" in note for note in found.notes)


def test_command(capfd, checkpoint, model, adapter, tmp_path):
    adapter.save(tmp_path / "scales")
    out = tmp_path / "heads"
    command = ("probe", str(checkpoint("llama")), "--lengths", "800", "--samples", "2")
    command += ("--method", "gradient", "--looks", "--adapter", str(tmp_path / "scales"))
    code, shown, error = tiny.outcome(capfd, *command, "--out", str(out))
    assert code == 0, error
    assert "what goes together" in shown
    assert "with the adapter" in shown
    page = (out / "report.html").read_text()
    assert "Where heads look, at 800 tokens" in page
    assert "Learned scales and influence" in page
    code, _, error = tiny.outcome(capfd, *command, "--out", str(out), "--resume")
    assert code == 0, error
