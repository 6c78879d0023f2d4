"""Killed at any moment, a tuning goes on to the bit-identical result; what was learned stays."""

import errno
from functools import cache
from types import SimpleNamespace

import pytest
import tiny
import torch

from longseal import TuneConfig
from longseal.errors import LongsealError
from longseal.files import Log
from longseal.tasks import Family
from longseal.tasks.registry import FAMILIES
from longseal.tuning import trajectory
from longseal.tuning.tune import tune

#: Two training lengths, 160 tokens and 320: 4 steps and 2.
CONFIG = TuneConfig(task="pairs", length=320, steps=4, questions=4, held_out=6, seed=1, guard=None)
KINDS = ["head", "channel", "lora", "dora"]


@pytest.fixture(autouse=True, scope="module")
def _short_contexts_first():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longseal.tuning.samples.SHORTEST", 128)
        patch.setattr("longseal.tuning.training.CHANGE", -1.0)  # no other budget is tried
        yield


def go(model, folder, config=CONFIG, log=None):
    """Tune in a folder, or go on in it."""
    log = log or Log(folder / "results.jsonl")
    adapter = tune(model, tiny.Pairs(), config, folder=folder / "steps", log=log)
    return SimpleNamespace(adapter=adapter, folder=folder, log=Log(folder / "results.jsonl"))


@pytest.fixture(scope="module")
def whole(llama, tmp_path_factory):
    """By kind, a run that nothing disturbed."""

    @cache
    def run(kind):
        config = CONFIG.model_copy(update={"kind": kind})
        return go(llama, tmp_path_factory.mktemp(kind), config)

    return run


class Dying(Log):
    """A log that a kill follows, after the first line that is like this."""

    def __init__(self, path, **line):
        super().__init__(path)
        self._line = line

    def append(self, record):
        super().append(record)
        if self._line.items() <= record.items():
            raise KeyboardInterrupt


def killed(model, folder, config=CONFIG, **line):
    with pytest.raises(KeyboardInterrupt):
        go(model, folder, config, Dying(folder / "results.jsonl", **line))


def tensors(adapter):
    return adapter.scales.deltas if hasattr(adapter, "scales") else adapter.updates.tensors


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(each) for each in value] if isinstance(value, list) else value


def files(run):
    return {path.name: path.read_bytes() for path in (run.folder / "steps").iterdir()}


def identical(run, other):
    one, two = tensors(run.adapter), tensors(other.adapter)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert without_seconds(run.adapter.record) == without_seconds(other.adapter.record)
    assert files(run) == files(other)


def copied(run, folder):
    """The run's steps in another folder, and nothing of its log."""
    (folder / "steps").mkdir()
    for name, data in files(run).items():
        (folder / "steps" / name).write_bytes(data)
    return folder / "steps"


def test_the_run_that_is_disturbed_here_has_all_that_could_be_disturbed(whole):
    for kind in KINDS:
        run = whole(kind)
        assert [rung["train_length"] for rung in run.adapter.record["rungs"]] == [160, 320]
        assert [rung["steps"] for rung in run.adapter.record["rungs"]] == [4, 2]
        assert sum(name.startswith("step") for name in files(run)) == 6
        assert not run.log.read(event="race")
    assert any(whole(kind).adapter.record["chosen"]["step"] for kind in KINDS)


# Killed


@pytest.mark.parametrize(
    "line",
    [
        {"event": "held-out accuracy", "step": 0},
        {"event": "step", "step": 1},
        {"event": "step", "step": 4},
        {"event": "held-out accuracy", "step": 4, "strength": 1.0},
        {"event": "step", "step": 5},
        {"event": "held-out loss", "step": 6},
        {"event": "held-out accuracy", "step": 6, "strength": 1.4},
    ],
    ids=lambda line: "-".join(map(str, line.values())),
)
def test_a_run_that_is_killed_ends_bit_identical(llama, whole, tmp_path, line):
    killed(llama, tmp_path, **line)
    assert not any(m._forward_pre_hooks for m in llama.network.modules())
    resumed = go(llama, tmp_path)
    identical(resumed, whole("channel"))
    assert [made["step"] for made in resumed.log.read(event="step")] == list(range(1, 7))


@pytest.mark.parametrize("kind", KINDS)
def test_so_does_every_kind(llama, whole, tmp_path, kind):
    config = CONFIG.model_copy(update={"kind": kind})
    killed(llama, tmp_path, config, event="step", step=3)
    killed(llama, tmp_path, config, event="step", step=5)
    identical(go(llama, tmp_path, config), whole(kind))


def test_a_finished_run_that_is_resumed_runs_the_model_no_more(llama, whole, tmp_path):
    go(llama, tmp_path)
    ran = []
    hook = llama.network.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        again = go(llama, tmp_path)
    finally:
        hook.remove()
    identical(again, whole("channel"))
    assert not ran


def test_so_does_a_run_that_is_guarded(llama, tmp_path, monkeypatch):
    family = Family("others", "", lambda variant, material: tiny.Pairs("others"))
    monkeypatch.setitem(FAMILIES, "others", family)
    settings = {"length": (128,), "guard": 1.0, "guard_task": ("others",)}
    config = CONFIG.model_copy(update=settings)
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    undisturbed = go(llama, folders[0], config)
    measured, read = looks(undisturbed)
    assert measured
    assert len(read) > 2  # what did harm, and weaker versions of it
    *_, mended = undisturbed.adapter.record["rungs"]
    assert mended["mends"]

    killed(llama, folders[1], config, event="guard")
    killed(llama, folders[1], config, event="step", step=3)
    killed(llama, folders[1], config, event="guard text")
    killed(llama, folders[1], config, event="step", step=5)  # the first that mends
    resumed = go(llama, folders[1], config)
    identical(resumed, undisturbed)
    assert looks(resumed) == (measured, read)


def test_text_is_read_more_as_before_once_its_harm_is_mended(llama, tmp_path):
    config = CONFIG.model_copy(update={"length": (128,), "guard": 0.01})
    run = go(llama, tmp_path, config)
    steps, mended = (rung["steps"] for rung in run.adapter.record["rungs"])
    assert (steps, mended) == (4, 2)
    found, *_ = read = run.log.read(event="guard text")
    once_mended = next(line for line in read if line["step"] == 6)
    assert divergence(once_mended) < divergence(found)


def divergence(line):
    """Nats between the base's predictions of text and these, over all texts."""
    return sum(text["kl"] for text in line["measured"]["texts"])


def looks(run):
    """What the guard measured: formats and text, and text alone."""
    return run.log.read(event="guard"), run.log.read(event="guard text")


# Torn files, full disks


@pytest.mark.parametrize(
    ("torn", "left"),
    [("step", 0), ("step", 300), ("optimiser", -1), ("step optimiser", 300)],
)
def test_a_torn_newest_step_falls_back_to_the_one_before(llama, whole, tmp_path, torn, left):
    steps = copied(whole("channel"), tmp_path)
    for name in torn.split():
        path = steps / f"{name}-0006.safetensors"
        path.write_bytes(path.read_bytes()[:left])
    resumed = go(llama, tmp_path)
    assert [made["step"] for made in resumed.log.read(event="step")] == [6]
    identical(resumed, whole("channel"))


@pytest.mark.parametrize("step", [2, 4])
def test_a_torn_earlier_step_is_made_again(llama, whole, tmp_path, step):
    steps = copied(whole("channel"), tmp_path)
    torn = steps / f"step-{step:04d}.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    identical(go(llama, tmp_path), whole("channel"))


@pytest.mark.parametrize("name", ["optimiser-0003", "step-0003", "step-0005"])
def test_a_full_disk_is_said_and_what_was_learned_stays(llama, whole, tmp_path, monkeypatch, name):
    def full(tensors, path, *args, **kwargs):
        if name in path.name:
            path.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(tensors, path, *args, **kwargs)

    save = trajectory.save_file
    monkeypatch.setattr(trajectory, "save_file", full)
    with pytest.raises(LongsealError, match=f"{name}.* cannot be written: No space left"):
        go(llama, tmp_path)
    step = int(name[-4:])
    kept = sorted(path.name for path in (tmp_path / "steps").glob("step*"))
    assert kept == [f"step-{number:04d}.safetensors" for number in range(1, step)]
    assert not list((tmp_path / "steps").glob("*partial*"))

    monkeypatch.setattr(trajectory, "save_file", save)
    identical(go(llama, tmp_path), whole("channel"))
