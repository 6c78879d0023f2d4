"""Out of memory costs a second try in less of it, then a clear line; what was learned stays."""

from types import SimpleNamespace

import pytest
import tiny
import torch

from longseal import TuneConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.progress import bars
from longseal.tuning import gradient
from longseal.tuning.gradient import Gradient
from longseal.tuning.learned import learned_of
from longseal.tuning.tune import tune

CONTEXTS = [tiny.encoded(60), tiny.encoded(90)]
CONFIG = TuneConfig(task="pairs", length=128, steps=3, lr=0.1, held_out=2, guard=None)
REFUSALS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.fixture
def refuse(monkeypatch):
    """Makes losses raise an error after what they do: one a call, None for none."""

    def set_errors(*errors):
        left, true_loss = list(errors), gradient.loss

        def loss(*args, **kwargs):
            value = true_loss(*args, **kwargs)
            if left and (error := left.pop(0)) is not None:
                raise error
            return value

        monkeypatch.setattr(gradient, "loss", loss)

    return set_errors


def gradients(model, log=None):
    """The mean loss of two contexts, and its gradient."""
    learned = learned_of("channel", model, 0)
    with bars() as bar, learned.attached(model.network):
        found = Gradient(model, learned, None, log, bar)
        found.plan_for(CONTEXTS[1])
        value = found.of(CONTEXTS, 1)
    grads = {name: delta.grad for name, delta in learned.parameters.items()}
    return SimpleNamespace(value=value, grads=grads)


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_out_of_memory_is_tried_once_more_in_the_next_way(llama, tmp_path, refuse, error):
    expected = gradients(llama)
    refuse(None, error)  # the first context's gradient is there already
    log = Log(tmp_path / "results.jsonl")
    found = gradients(llama, log)
    assert [line["way"] for line in log.read(event="memory")] == ["everything", "attention"]
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    for name, grad in found.grads.items():
        torch.testing.assert_close(grad, expected.grads[name], rtol=1e-5, atol=1e-6)


def test_the_way_that_did_is_kept(llama, tmp_path, refuse):
    refuse(REFUSALS[0])
    learned, log = learned_of("channel", llama, 0), Log(tmp_path / "results.jsonl")
    with bars() as bar, learned.attached(llama.network):
        found = Gradient(llama, learned, None, log, bar)
        found.plan_for(CONTEXTS[1])
        for step in (1, 2):
            found.of(CONTEXTS, step)
        assert len(log.read(event="memory")) == 2
        again = Gradient(llama, learned, None, log, bar)  # of a resumed run
        again.plan_for(CONTEXTS[1])
        again.of(CONTEXTS, 3)
    assert len(log.read(event="memory")) == 2
    assert again._planned().way == "attention"


def test_out_of_memory_twice_is_refused_in_one_line(llama, refuse):
    refuse(*REFUSALS[:2])
    with pytest.raises(LongsealError, match="--resume; or start anew with fewer --questions") as e:
        gradients(llama)
    assert len(str(e.value).splitlines()) == 1


def test_the_smallest_way_is_the_last(llama, refuse, monkeypatch):
    monkeypatch.setattr("longseal.tuning.memory.plan.free_bytes", lambda device: 0)
    refuse(REFUSALS[0])
    with pytest.raises(LongsealError, match="out of memory"):
        gradients(llama)


def test_another_error_is_not_taken_for_it(llama, refuse):
    refuse(RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        gradients(llama)


def test_steps_that_were_made_stay_and_are_gone_on_with(llama, tmp_path, refuse, monkeypatch):
    def go():
        log = Log(tmp_path / "results.jsonl")
        return tune(llama, tiny.Pairs(), CONFIG, folder=tmp_path / "steps", log=log)

    refuse(None, None, *REFUSALS[:2])
    with pytest.raises(LongsealError, match="out of memory"):
        go()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "steps").glob("step*")}
    assert sorted(kept) == ["step-0001.safetensors", "step-0002.safetensors"]
    assert not any(module._forward_pre_hooks for module in llama.network.modules())
    assert go().record["steps"] == 3
    assert all((tmp_path / "steps" / name).read_bytes() == data for name, data in kept.items())
