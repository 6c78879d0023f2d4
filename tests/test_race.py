"""Where the first steps diverge or do nothing other budgets are tried; steps end when it pays."""

import sys
from types import SimpleNamespace

import pytest
import tiny
from safetensors.torch import load_file

from longseal import TuneConfig
from longseal.files import Log
from longseal.tasks.prompt import Prompts
from longseal.tuning.optimisation import MOVEMENT
from longseal.tuning.samples import Mixture
from longseal.tuning.tune import tune
from longseal.tuning.watching import Watch

CONFIG = TuneConfig(task="pairs", length=128, steps=4, questions=4, held_out=2, guard=None)


@pytest.fixture
def budget(monkeypatch):
    """Sets how far a scale may go, where the held-out loss is least if they go to 0.1."""
    module, learned = sys.modules["longseal.tuning.tune"], []
    learned_of = module.learned_of
    monkeypatch.setattr(
        module, "learned_of", lambda *args: learned.append(learned_of(*args)) or learned[-1]
    )
    monkeypatch.setattr(
        Watch, "loss", lambda watch: 2 + 100 * (0.1 - furthest(learned[-1].parameters)) ** 2
    )
    return lambda value: monkeypatch.setitem(MOVEMENT, "channel", value)


def go(model, folder, log=Log, **fields):
    """Tune in a folder, or go on in it."""
    folder.mkdir(exist_ok=True)
    log = log(folder / "results.jsonl")
    config = CONFIG.model_copy(update=fields)
    adapter = tune(model, tiny.Pairs(), config, folder=folder / "steps", log=log)
    return SimpleNamespace(adapter=adapter, folder=folder, log=Log(folder / "results.jsonl"))


def steps_of(run):
    paths = sorted((run.folder / "steps").glob("step*"))
    return {path.name: path.read_bytes() for path in paths}


def furthest(deltas):
    """How far a scale went."""
    return max(delta.abs().max().item() for delta in deltas.values())


def last_state(run):
    return load_file(max((run.folder / "steps").glob("step*")))


@pytest.mark.parametrize(("usual", "factor"), [(1e-3, 4.0), (4.0, 0.25)])
def test_a_budget_with_which_the_first_steps_do_nothing_or_diverge_is_changed(
    llama, tmp_path, budget, usual, factor
):
    budget(usual)
    run = go(llama, tmp_path)
    (race,) = run.log.read(event="race")
    assert race["factor"] == factor
    losses = {float(name): loss for name, loss in race["losses"].items()}
    assert losses[factor] == min(losses.values())
    assert 0.3 * factor * usual < furthest(last_state(run)) < 1.01 * factor * usual
    assert run.adapter.record["rungs"][0]["steps"] == 4


class Killed(Log):
    """A log that a kill follows, after the race or before it."""

    after = True

    def append(self, record):
        if record["event"] == "race" and not self.after:
            raise KeyboardInterrupt
        super().append(record)
        if record["event"] == "race":
            raise KeyboardInterrupt


class KilledBefore(Killed):
    after = False


@pytest.mark.parametrize("log", [Killed, KilledBefore])
def test_a_run_that_is_killed_at_the_race_ends_bit_identical(llama, tmp_path, budget, log):
    budget(1e-3)
    whole = go(llama, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(llama, tmp_path / "killed", log)
    resumed = go(llama, tmp_path / "killed")
    assert len(resumed.log.read(event="race")) == 1
    assert steps_of(resumed) == steps_of(whole)
    again = go(llama, tmp_path / "killed")
    assert len(again.log.read(event="race")) == 1
    assert steps_of(again) == steps_of(whole)


def test_a_race_at_a_longer_length_leaves_the_shorter_one_s_steps_alone(
    llama, tmp_path, monkeypatch
):
    monkeypatch.setattr("longseal.tuning.samples.SHORTEST", 96)
    monkeypatch.setattr(tiny, "chance", lambda prediction, question: 0.0)  # nothing is learned
    looks = iter([2.0, 1.0, 1.0, 1.0, 1.0])  # at the first length all is well, at the next nothing
    monkeypatch.setattr(Watch, "loss", lambda watch: next(looks, 1.0))
    run = go(llama, tmp_path, length=(192,))
    (race,) = run.log.read(event="race")
    assert race["tokens"] == 192
    before = steps_of(run)
    assert steps_of(go(llama, tmp_path, length=(192,))) == before
    assert len(run.log.read(event="race")) == 1


def test_a_budget_that_does_well_is_kept(llama, tmp_path, budget):
    budget(0.25)
    assert not go(llama, tmp_path).log.read(event="race")


def test_a_learning_rate_that_is_set_is_kept(llama, tmp_path):
    run = go(llama, tmp_path, lr=1e-4)
    assert not run.log.read(event="race")
    assert 0.3 * 4e-4 < furthest(last_state(run)) < 1.01 * 4e-4


# When it ends


def test_it_ends_when_the_held_out_loss_stops_falling(llama, tmp_path, monkeypatch):
    looks = iter([4.0, 3.0, 2.99, 2.98])
    monkeypatch.setattr(Watch, "loss", lambda watch: next(looks))
    run = go(llama, tmp_path, steps=None, samples=32)  # 8 steps, a look after every other
    (rung,) = run.adapter.record["rungs"]
    assert rung["steps"] == 6
    assert rung["stopped"] == run.adapter.record["stopped"] == "the held-out loss stopped falling"
    assert steps_of(go(llama, tmp_path, steps=None, samples=32)) == steps_of(run)


@pytest.mark.parametrize(
    ("losses", "fields"), [([4, 3, 2.5, 2, 1.5], {}), ([4, 3, 3, 3, 3], {"steps": 8})]
)
def test_it_goes_on_as_long_as_it_falls_or_is_told_to(llama, tmp_path, monkeypatch, losses, fields):
    looks = iter(losses)
    monkeypatch.setattr(Watch, "loss", lambda watch: float(next(looks)))
    run = go(llama, tmp_path, **{"steps": None, "samples": 32} | fields)
    assert run.adapter.record["steps"] == 8
    assert run.adapter.record["stopped"] is None


def watched(model, log=None):
    mixture = Mixture.of([tiny.Pairs()], Prompts(model), CONFIG, model.window)
    return Watch(model, mixture, 128, log)


def test_a_loss_that_is_no_number_is_the_worst_and_is_remembered_so(llama, tmp_path):
    log = Log(tmp_path / "results.jsonl")
    hook = llama.network.lm_head.register_forward_hook(lambda *args: args[2] * float("nan"))
    try:
        assert watched(llama, log).look(1, 0.1) == float("inf")
    finally:
        hook.remove()
    assert "Infinity" not in log.path.read_text()  # which is no JSON
    assert watched(llama, log).look(1, 0.1) == float("inf")


def test_looks_at_another_length_or_rate_are_others(llama, tmp_path):
    log = Log(tmp_path / "results.jsonl")
    first = watched(llama, log).look(2, 0.1)
    scales = tiny.random_scales(llama, "channel")
    with scales.attached(llama.network):
        assert watched(llama, log).look(2, 0.1) == first
        assert watched(llama, log).look(2, 0.2) != first
