"""The paper's own recipe; and several tasks, or a range of lengths, in one set of scales."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import tiny
from safetensors.torch import load_file

from longseal import TuneConfig
from longseal.files import Log
from longseal.tasks.prompt import Prompts
from longseal.tuning.gradient import Gradient
from longseal.tuning.optimisation import PAPER_RATE
from longseal.tuning.recipe import followed
from longseal.tuning.samples import Mixture
from longseal.tuning.tune import tune

PAPER = TuneConfig(recipe="paper", task="pairs", length=160, samples=3, held_out=2, guard=None)


def go(model, folder, config, *tasks):
    log = Log(folder / "results.jsonl")
    return tune(model, tasks or tiny.Pairs(), config, folder=folder / "steps", log=log), log


# The paper's


@pytest.mark.parametrize("kind", ["channel", "head", "lora", "dora"])
def test_the_paper_took_50_samples_of_one_question_at_full_length(kind):
    taken = followed(TuneConfig(recipe="paper", kind=kind, length="4k-31k"))
    assert (taken.samples, taken.steps, taken.questions) == (50, 50, 1)
    assert taken.train_length == 31 * 1024
    assert taken.lr == {"channel": 2e-2, "head": 1e-2}.get(kind, 2e-4)


def test_what_is_set_is_kept_and_our_own_recipe_is_left_alone():
    taken = followed(TuneConfig(recipe="paper", lr=0.5, samples=7, train_length=600))
    assert (taken.lr, taken.samples, taken.steps, taken.train_length) == (0.5, 7, 7, 600)
    assert followed(TuneConfig()) == TuneConfig()


def test_its_last_step_is_taken_as_it_is(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "chance", lambda prediction, question: 0.0)  # nothing is gained
    monkeypatch.setattr("longseal.tuning.watching.Watch.loss", lambda watch: 1.0)  # nor here
    adapter, log = go(llama, tmp_path, PAPER)
    assert (adapter.record["chosen"]["step"], adapter.record["chosen"]["strength"]) == (3, 1.0)
    last = load_file(tmp_path / "steps" / "step-0003.safetensors")
    assert all((delta == last[name]).all() for name, delta in adapter.scales.deltas.items())
    judged = [(line["step"], line["strength"]) for line in log.read(event="held-out accuracy")]
    assert judged == [(0, 0.0), (3, 1.0)]
    assert not log.read(event="race")
    assert adapter.record["stopped"] is None


def test_its_steps_are_of_one_question_each_of_the_full_length(llama, tmp_path):
    _, log = go(llama, tmp_path, PAPER)
    mixture = Mixture.of([tiny.Pairs()], Prompts(llama), followed(PAPER), llama.window)
    for number, line in enumerate(log.read(event="step")):
        (context,) = mixture.step(160, number)
        assert len(context.questions) == 1
        assert 0.9 * 160 < line["tokens"] == context.length <= 160


def test_its_rate_is_constant(llama, tmp_path):
    """Adam's first steps are of the rate's size where the gradient keeps its sign."""
    go(llama, tmp_path, PAPER)
    states = [load_file(tmp_path / "steps" / f"step-000{step}.safetensors") for step in (1, 2, 3)]
    name = next(iter(states[0]))
    ways = [states[0][name], *(after[name] - before[name] for before, after in pairwise(states))]
    furthest = [way.abs().max().item() for way in ways]
    rate = PAPER_RATE["channel"]
    assert furthest == pytest.approx([rate] * 3, rel=0.1)
    assert ways[0].abs().min().item() == pytest.approx(rate, rel=0.01)  # however small its gradient


# Several tasks and lengths


@pytest.fixture(scope="module")
def mixed(llama, tmp_path_factory):
    config = TuneConfig(
        task=("pairs:2", "others"),
        length="96-192",
        train_length=128,
        steps=6,
        lr=0.05,
        questions=2,
        held_out=4,
        guard=None,
    )
    contexts, true_of = [], Gradient.of

    def of(gradient, made, step):
        contexts.append([each.source.context for each in made])
        return true_of(gradient, made, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gradient, "of", of)
        tasks = tiny.Pairs(), tiny.Pairs("others")
        adapter, _ = go(llama, tmp_path_factory.mktemp("mixed"), config, *tasks)
    mixture = Mixture.of(tasks, Prompts(llama), config, llama.window)
    return SimpleNamespace(record=adapter.record, contexts=contexts, parts=mixture.parts)


def test_each_task_s_held_out_score_is_told_and_the_mean_is_by_weight(mixed):
    record = mixed.record
    assert record["task"] == "pairs, others"
    assert record["held_out"].keys() == {"pairs", "others"}
    for side, whole in (
        ("base", record["held_out_base"]),
        ("chosen", record["chosen"]["accuracy"]),
    ):
        pairs, others = (record["held_out"][task][side] for task in ("pairs", "others"))
        assert whole == pytest.approx((2 * pairs + others) / 3)
    assert "pairs" in record["sentence"]
    assert "others" in record["sentence"]
    assert "96 to 192" in record["sentence"]


def test_each_task_has_its_share_of_the_steps(mixed):
    for part, share in zip(mixed.parts, (4, 2), strict=True):
        own = [[each.source.context for each in part.step(128, n)] for n in range(share)]
        assert [contexts for contexts in mixed.contexts if contexts in own] == own
    assert len(mixed.contexts) == 6


def test_both_ends_of_a_range_are_asked(mixed):
    for part in mixed.parts:
        lengths = sorted(sample.length for sample in part.held_out())
        assert lengths[0] <= 96 < 150 < lengths[-1] <= 192
