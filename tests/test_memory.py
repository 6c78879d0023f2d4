"""Every way to save memory gives the same gradients, keeps less, and needs what was foretold."""

import sys

import pytest
import tiny
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from longseal.models.load import LanguageModel
from longseal.models.saving import saving, ways
from longseal.models.sites import Structure
from longseal.models.structure import find_structure
from longseal.tasks.loss import loss
from longseal.tuning.learned import LearnedScales
from longseal.tuning.memory import fitting_plan, step_bytes
from longseal.tuning.memory.live import Live

WAYS = ["everything", "attention", "layers", "tiles", "offload"]
NAMES = ["llama", "gpt2", "mistral"]
SAMPLE = tiny.encoded(context=140)  # beyond the 96 tokens of Mistral's window


def learned_on(model):
    """Scales all different from 1, ready to be attached."""
    learned = LearnedScales("channel", model)
    learned.set(tiny.random_scales(model, "channel").deltas)
    return learned


def step(model, way, sample=SAMPLE):
    """Loss and gradients of one step."""
    learned = learned_on(model)
    with learned.attached(model.network), saving(model.network, way):
        value = loss(model, sample, backward=True)
    return value, {name: number.grad for name, number in learned.parameters.items()}


def live_step(model, way, sample, learned=None):
    """Most bytes at once in a whole step, counted."""
    learned = learned or learned_on(model)
    live = Live(model.device, [*model.network.parameters(), *model.network.buffers()])
    with learned.attached(model.network), saving(model.network, way), live:
        loss(model, sample, backward=True)
    return live.peak


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_are_those_of_a_step_that_keeps_everything(loaded, name, way):
    expected, gradients = step(loaded(name), "everything")
    value, found = step(loaded(name), way)
    assert value == pytest.approx(expected, rel=1e-6)
    assert found.keys() == gradients.keys()
    for site, gradient in gradients.items():
        assert gradient.abs().min() > 0
        assert (found[site] - gradient).norm() <= 1e-5 * gradient.norm(), site


@pytest.mark.parametrize("way", WAYS)
def test_a_bfloat16_base_gives_finite_float32_gradients(way):
    model = language_model(tiny.network(tiny.LLAMA).bfloat16())
    for gradient in step(model, way)[1].values():
        assert gradient.dtype == torch.float32
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


def language_model(network):
    network.requires_grad_(False)
    return LanguageModel("", network, None, find_structure(network), 4096)


class Calls(TorchDispatchMode):
    """Names of the operations that are run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("way", "times"), [("everything", 1), ("attention", 1), ("layers", 2)])
def test_attention_runs_again_only_where_its_output_is_not_kept(llama, way, times):
    step(llama, way)  # whether it takes packed rows is tried out once
    with Calls() as calls:
        step(llama, way)
    attended = [n for n in calls.names if "scaled_dot" in n and "backward" not in n]
    assert len(attended) == times * 2 * len(llama.sites)  # a context and a strip in each layer


@pytest.mark.parametrize(("way", "times"), [("everything", 1), ("layers", 2), ("tiles", 2)])
def test_tiles_run_an_mlp_no_more_often_than_layers_that_run_again(llama, way, times):
    step(llama, way)  # what is tried out once
    rows, learned = [], learned_on(llama)
    mlp = llama.network.model.layers[1].mlp.down_proj
    with learned.attached(llama.network), saving(llama.network, way):
        hook = mlp.register_forward_pre_hook(lambda _m, args: rows.append(args[0].shape[1]))
        try:
            loss(llama, SAMPLE, backward=True)
        finally:
            hook.remove()
    assert sum(rows) == times * (140 + sum(q + a - 1 for q, a in ((5, 4), (9, 6), (3, 1))))
    assert (max(rows) < 50) == (way == "tiles")


@pytest.mark.parametrize("name", NAMES)
def test_each_way_needs_less_than_the_one_before(loaded, name):
    model = loaded(name)
    sample = tiny.encoded(context=900)
    needs = [live_step(model, way, sample) for way in ways(model.network)]
    assert needs == sorted(needs, reverse=True)
    assert len(set(needs)) == len(needs) == 4


@pytest.mark.parametrize("way", ["everything", "attention", "layers", "tiles"])
def test_nothing_is_kept_below_the_first_scaled_layer(way):
    """Ten layers more below it cost less than one tensor of hidden states."""
    sample = tiny.encoded(context=900)
    needs = []
    for layers in (3, 13):
        model = language_model(tiny.network(tiny.LLAMA | {"num_hidden_layers": layers}))
        top = Structure(model.structure.sites[-1:], {})
        model = LanguageModel("", model.network, None, top, 4096)
        needs.append(live_step(model, way, sample, LearnedScales("channel", model)))
    assert needs[1] - needs[0] < 900 * 48 * 4


@pytest.mark.parametrize("way", ["everything", "attention", "layers", "tiles"])
@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        *((name, ((5, 4), (9, 6), (3, 1))) for name in NAMES),
        ("llama", ((40, 8),) * 10),  # a strip whose masks count
    ],
)
def test_a_short_piece_tells_what_a_long_row_needs(loaded, name, blocks, way):
    model, sample = loaded(name), tiny.encoded(context=1000, blocks=blocks)
    if name == "mistral":  # beyond its window, which is longer than the pieces that are measured
        model = language_model(tiny.network(tiny.MISTRAL | {"sliding_window": 400}))
    learned = learned_on(model)
    with learned.attached(model.network):
        foretold = step_bytes(model, learned, sample, way)
    assert foretold == pytest.approx(live_step(model, way, sample), rel=0.1)


def test_measuring_leaves_gradients_alone(llama):
    learned = learned_on(llama)
    with learned.attached(llama.network):
        loss(llama, SAMPLE, backward=True)
        before = {name: number.grad.clone() for name, number in learned.parameters.items()}
        step_bytes(llama, learned, SAMPLE, "layers")
    for name, number in learned.parameters.items():
        assert torch.equal(number.grad, before[name])


def planned(model, free, monkeypatch):
    monkeypatch.setattr("longseal.tuning.memory.plan.free_bytes", lambda _: round(free))
    learned = learned_on(model)
    with learned.attached(model.network):
        return fitting_plan(model, learned, SAMPLE)


def test_the_fastest_way_that_fits_half_of_what_is_free_is_taken(llama, monkeypatch):
    enough = planned(llama, 2**40, monkeypatch)
    assert (enough.way, enough.free) == ("everything", 2**40)
    for way in ("attention", "layers", "tiles"):
        learned = learned_on(llama)
        with learned.attached(llama.network):
            need = step_bytes(llama, learned, SAMPLE, way)
        assert planned(llama, 2.02 * need, monkeypatch).way == way
    assert planned(llama, 0, monkeypatch).way == "tiles"


def test_a_plan_says_what_it_keeps_and_knows_the_next_ones(llama, monkeypatch):
    plan = planned(llama, 5 * 2**30, monkeypatch)
    assert plan.about == "memory: everything kept (about 0.0 of 5.0 GiB free)"
    seen = []
    while plan is not None:
        seen.append(plan.way)
        plan = plan.smaller
        if plan is not None:
            assert plan.need is None
            assert plan.about.startswith("memory: ")
    assert seen == ["everything", "attention", "layers", "tiles"]


def test_layers_that_are_not_of_transformers_own_kind_keep_everything(llama, monkeypatch):
    class Other(nn.Module):
        pass

    monkeypatch.setattr(sys.modules[saving.__module__], "GradientCheckpointingLayer", Other)
    assert ways(llama.network) == ("everything",)
    assert planned(llama, 0, monkeypatch).smaller is None


def test_saving_memory_leaves_no_trace(llama):
    step(llama, "offload")
    assert not any("forward" in vars(module) for module in llama.network.modules())
    assert not any(module.training for module in llama.network.modules())
    assert not any(parameter.requires_grad for parameter in llama.network.parameters())


def test_layers_that_run_again_force_no_gradient_into_the_embeddings(llama):
    asked = []
    embeddings = llama.network.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _m, _a, out: asked.append(out.requires_grad))
    try:
        step(llama, "layers")
    finally:
        hook.remove()
    assert asked == [False]
