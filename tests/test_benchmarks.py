"""The benchmarks start, and both of their sides are judged as what they are."""

import runpy
import sys
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file

from longseal.scales import Scales
from longseal.tasks import Wanted
from longseal.tasks.prompt import Prompts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
import peer  # noqa: E402
import side_by_side  # noqa: E402

ROW = torch.tensor([tiny.tokens(50)])


def ia3():
    """A tiny model with PEFT's vectors."""
    return peer.with_vectors(tiny.network(tiny.LLAMA)).eval()


def drawn(network):
    """The vectors, made all different."""
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                assert "ia3_l" in name
                parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, generator=random))
    return network


def samples(model, count, lines=4):
    prompts, task = Prompts(model), tiny.ShortLines()
    return [prompts.encode(task.sample(Wanted(lines, 1, f"{number}"))) for number in range(count)]


def judge_of(model):
    return side_by_side.Judge(model, tiny.Chance(), Prompts(model), samples(model, 3))


@pytest.mark.parametrize(
    "name",
    ["estimate", "evaluation", "extend", "fold", "full_length", "gpu", "lines", "step", "tuning"],
)
def test_a_benchmark_says_what_it_takes(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert not ended.value.code
    assert "--quick" in capsys.readouterr().out


@torch.no_grad()
def test_the_vectors_of_peft_as_scales_give_the_logits_of_peft(llama):
    network = drawn(ia3())
    expected = network(input_ids=ROW).logits
    base = llama.network(input_ids=ROW).logits
    with peer.scales(peer.vectors_of(network), llama.sites).attached(llama.network):
        found = llama.network(input_ids=ROW).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (expected - base).abs().max() > 0.1


@torch.no_grad()
def test_the_peer_learns_the_answer_alone(llama):
    sample, network = samples(llama, 1)[0], drawn(ia3())
    (row,) = peer.rows([sample])
    batch = {name: torch.tensor([tokens]) for name, tokens in row.items()}
    answer = sample.answers[0]
    assert tuple(row["input_ids"]) == sample.prompt(0) + answer

    chances = network(input_ids=batch["input_ids"]).logits[0].log_softmax(-1)
    first = len(sample.prompt(0)) - 1
    expected = -sum(chances[first + i, token] for i, token in enumerate(answer)) / len(answer)
    torch.testing.assert_close(network(**batch).loss, expected, rtol=1e-5, atol=1e-5)


def test_a_run_of_the_peer_keeps_every_step_and_is_not_made_again(llama, tmp_path, monkeypatch):
    judge = judge_of(llama)
    run = side_by_side.peer_run(judge, samples(llama, 3), tmp_path, "peer")
    assert len(run.seconds) == 3
    assert list(run.seconds) == sorted(run.seconds)
    assert not torch.equal(*(run.scales(s).deltas[llama.sites[0].name] for s in (0, 2)))
    kept = load_file(peer.file_of(tmp_path, 1))[llama.sites[0].name]
    assert (kept - 1).abs().max().item() == pytest.approx(peer.RATE, rel=0.01)  # Adam's first step

    monkeypatch.setattr(peer, "train", None)
    again = side_by_side.peer_run(judge, samples(llama, 3), tmp_path, "peer")
    assert again.seconds == run.seconds
    assert again.accuracy(1) == run.accuracy(1)


def test_layers_that_are_checkpointed_teach_the_peer_the_same(llama, tmp_path, monkeypatch):
    found = []
    for saves_memory in (False, True):
        monkeypatch.setattr(peer, "needs_checkpointing", lambda tokens, s=saves_memory: s)
        folder = tmp_path / str(saves_memory)
        network, passes = ia3(), []
        first = network.get_submodule("base_model.model.model.layers.0.mlp")
        first.register_forward_pre_hook(lambda *_, passes=passes: passes.append(1))
        peer.train(network, peer.rows(samples(llama, 2)), folder)
        assert len(passes) == (4 if saves_memory else 2)  # a sample; again in the backward pass
        found.append(load_file(peer.file_of(folder, 2)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_our_run_is_judged_step_by_step(llama, tmp_path):
    settings = {"length": 800, "train_length": 760, "steps": 2, "samples": 8, "questions": 4}
    run, whole = side_by_side.our_run(judge_of(llama), tmp_path, held_out=2, **settings)
    assert len(run.seconds) == 2
    assert 0 < run.seconds[0] <= run.seconds[1] <= whole["seconds"]
    first, second = (run.scales(step) for step in range(2))
    assert isinstance(first, Scales)
    assert not first.unchanged
    assert not torch.equal(*(s.deltas[llama.sites[0].name] for s in (first, second)))
    assert 0 <= run.accuracy(1) <= 1


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_the_first_good_step_is_found_with_few_looks(count):
    for truth in range(count):
        seen = []

        def good(step, truth=truth, seen=seen):
            seen.append(step)
            return step >= truth

        assert side_by_side.first(count, good) == truth
        assert len(seen) <= 10
    assert side_by_side.first(count, lambda step: False) is None
