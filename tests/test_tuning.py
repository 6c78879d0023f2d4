"""Tuning moves the loss, touches nothing but the deltas, goes on where it stopped, does no harm."""

from types import SimpleNamespace

import pytest
import tiny
import torch
from safetensors.torch import load_file

import longseal
from longseal import TuneConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.scales import Scales
from longseal.tasks.fitting import fit
from longseal.tasks.loss import loss
from longseal.tasks.prompt import Prompts
from longseal.tuning.optimisation import MOVEMENT
from longseal.tuning.tune import tune

CONFIG = TuneConfig(
    length=800, train_length=760, samples=16, questions=4, held_out=5, seed=11, guard=None
)
STEPS = 4
STEP_NAMES = [f"step-{step:04d}.safetensors" for step in range(1, STEPS + 1)]


def step_files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def deltas_of(path):
    return load_file(path)


def same(one, other):
    return one.scales.deltas.keys() == other.scales.deltas.keys() and all(
        torch.equal(delta, other.scales.deltas[name]) for name, delta in one.scales.deltas.items()
    )


def bits(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


class LogThat(Log):
    """A log that calls `then` after a step's line was kept."""

    def __init__(self, path, step, then):
        super().__init__(path)
        self._step, self._then = step, then

    def append(self, record):
        super().append(record)
        if record["event"] == "step" and record["step"] == self._step:
            self._then()


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(llama, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    log = Log(folder / "results.jsonl")
    before = bits(llama.network)
    adapter = tune(llama, tiny.Chance(), CONFIG, folder=folder / "steps", log=log)
    return SimpleNamespace(adapter=adapter, steps=folder / "steps", log=log, before=before)


def test_the_loss_on_the_training_task_goes_down(llama, whole):
    prompts = Prompts(llama)
    samples = [
        fit(prompts, tiny.Chance(), 760, 4, f"train/11/lines/760/{step}", training=True)
        for step in range(STEPS)
    ]
    path = whole.steps / f"step-{STEPS:04d}.safetensors"
    last = Scales("channel", llama.sites, deltas_of(path))
    before = sum(loss(llama, sample) for sample in samples)
    with last.attached(llama.network):
        after = sum(loss(llama, sample) for sample in samples)
    assert after < before - 0.05


def test_the_log_tells_each_step_s_loss(llama, whole):
    lines = whole.log.read(event="step")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    sample = fit(Prompts(llama), tiny.Chance(), 760, 4, "train/11/lines/760/0", training=True)
    assert lines[0]["loss"] == pytest.approx(loss(llama, sample), rel=1e-6)
    assert lines[0]["tokens"] == sample.length


def test_nothing_but_the_deltas_changes(llama, whole):
    state = llama.network.state_dict()
    assert state.keys() == whole.before.keys()
    assert all(torch.equal(tensor, whole.before[name]) for name, tensor in state.items())
    assert not any(p.requires_grad for p in llama.network.parameters())
    assert all(p.grad is None for p in llama.network.parameters())
    assert not any(m.training or m._forward_pre_hooks for m in llama.network.modules())
    assert llama.network.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("kind", ["head", "channel"])
def test_no_scale_goes_further_than_the_budget(llama, tmp_path, kind):
    tune(llama, tiny.ShortLines(), CONFIG.model_copy(update={"kind": kind}), folder=tmp_path / "s")
    deltas = deltas_of(tmp_path / "s" / f"step-{STEPS:04d}.safetensors")
    furthest = max(delta.abs().max().item() for delta in deltas.values())
    assert 0.3 * MOVEMENT[kind] < furthest < 1.01 * MOVEMENT[kind]


class Otherwise(tiny.ShortLines):
    """Calls an answer right that is not the one given first, which is the unchanged model's."""

    def __init__(self):
        self._first = {}

    def score(self, prediction, question):
        right = float(prediction != self._first.setdefault(question.expected, prediction))
        return {"last": right, "first": right, "contains": right}


def test_the_adapter_is_the_chosen_step_at_the_chosen_strength(llama, tmp_path):
    adapter = tune(llama, Otherwise(), CONFIG, folder=tmp_path)
    chosen = adapter.record["chosen"]
    assert chosen["step"] > 0
    assert chosen["accuracy"] > adapter.record["held_out_base"] == 0
    kept = deltas_of(tmp_path / f"step-{chosen['step']:04d}.safetensors")
    for name, delta in adapter.scales.deltas.items():
        assert torch.equal(delta, kept[name] * chosen["strength"])


def test_the_record_says_how_the_adapter_came_about(whole):
    record = whole.adapter.record
    assert record["task"] == "lines"
    assert record["settings"] == CONFIG.model_dump(mode="json")
    assert record["steps"] == STEPS
    assert record["stopped"] is None


def test_the_same_seed_gives_the_same_scales_and_another_seed_others(llama, whole):
    assert same(tune(llama, tiny.Chance(), CONFIG), whole.adapter)
    other = tune(llama, tiny.Chance(), CONFIG.model_copy(update={"seed": 12}))
    assert not same(other, whole.adapter)


# Not finite


def with_nan(network, armed):
    """Logits become NaN where gradients are taken, from the moment that `armed` holds something."""

    def spoil(_module, _args, out):
        return out * float("nan") if armed and torch.is_grad_enabled() else out

    return network.lm_head.register_forward_hook(spoil)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_step(llama, whole, tmp_path):
    armed = []
    log = LogThat(tmp_path / "results.jsonl", 2, lambda: armed.append(1))
    hook = with_nan(llama.network, armed)
    try:
        adapter = tune(llama, tiny.Chance(), CONFIG, folder=tmp_path / "steps", log=log)
    finally:
        hook.remove()
    assert "not finite in step 3" in adapter.record["stopped"]
    assert "kept step 2" in adapter.record["stopped"]
    assert adapter.record["steps"] == 2
    assert adapter.scales.finite
    good, kept = step_files(whole.steps), step_files(tmp_path / "steps")
    assert [name for name in kept if name.startswith("step")] == STEP_NAMES[:2]
    assert all(kept[name] == good[name] for name in STEP_NAMES[:2])


def test_a_loss_that_is_never_finite_changes_nothing_and_says_so(llama):
    hook = with_nan(llama.network, [1])
    try:
        adapter = tune(llama, tiny.Chance(), CONFIG)
    finally:
        hook.remove()
    assert adapter.scales.unchanged
    assert "step 1" in adapter.record["stopped"]


# No harm


class Perfect(tiny.ShortLines):
    def score(self, prediction, question):
        return {"last": 1.0, "first": 1.0, "contains": 1.0}


def test_a_base_that_is_right_every_time_stays_as_it_is(llama, tmp_path):
    adapter = tune(llama, Perfect(), CONFIG, folder=tmp_path / "steps")
    assert adapter.scales.unchanged
    assert adapter.record["chosen"]["step"] == 0
    assert adapter.record["held_out_base"] == 1
    row = torch.tensor([tiny.tokens(40)])
    before = llama.network(input_ids=row).logits
    with adapter.attached(llama):
        assert torch.equal(llama.network(input_ids=row).logits, before)


def test_scales_that_gain_nothing_are_not_taken(llama, tmp_path):
    adapter = tune(llama, tiny.ShortLines(), CONFIG, folder=tmp_path / "steps")
    assert adapter.record["held_out_base"] == 0  # babble is never right
    assert adapter.scales.unchanged
    kept = [name for name in step_files(tmp_path / "steps") if name.startswith("step")]
    assert kept == STEP_NAMES


# Refusals


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"length": 5000}, "5000 is beyond"),
        ({"length": 2000, "train_length": 5000}, "5000 is beyond"),
        ({"length": 100}, "100 is too short"),
        ({"length": 1000, "train_length": 100}, "100 is too short"),
    ],
)
def test_lengths_that_cannot_be_are_refused(llama, fields, match):
    with pytest.raises(LongsealError, match=match):
        longseal.tune(llama, tiny.ShortLines(), **fields, samples=2, held_out=1)


def test_a_windowed_model_is_tuned_too(loaded, tmp_path):
    adapter = tune(
        loaded("mistral"),
        tiny.ShortLines(),
        CONFIG.model_copy(update={"samples": 4}),
        folder=tmp_path / "steps",
    )
    assert adapter.record["steps"] == 1
    kept = deltas_of(tmp_path / "steps" / "step-0001.safetensors")
    assert all(delta.abs().min() > 0 for delta in kept.values())
