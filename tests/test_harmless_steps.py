"""What keeps the steps from doing harm: a divergence from the base's text, and damping."""

import pytest
import torch

from longseal.tasks.prompt import Prompts
from longseal.tuning.guard.text import built_in_texts
from longseal.tuning.held_out import put
from longseal.tuning.learned import LearnedScales, learned_of
from longseal.tuning.optimisation import Optimiser
from longseal.tuning.replay import WEIGHT, Replay


def random_state(learned):
    random = torch.Generator().manual_seed(3)
    return {
        name: 0.2 * torch.randn(value.shape, generator=random)
        for name, value in learned.parameters.items()
    }


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_the_replay_s_gradient_is_that_of_the_divergence_from_the_base(loaded, plain, name):
    model = loaded(name)
    learned = LearnedScales("channel", model)
    with learned.attached(model.network):
        replay = Replay(model, Prompts(model), seed=0)
        state = random_state(learned)
        put(learned, state, 1.0)
        replay.backward(2)
        gradients = {n: p.grad.clone() for n, p in learned.parameters.items()}
    piece = replay.pieces[2]
    places = torch.linspace(0, len(piece) - 1, 64).round().long()

    def divergence(shift):
        for site, delta in learned.parameters.items():
            delta.data.copy_(state[site] + shift * gradients[site])
        with torch.no_grad():
            base = plain(name)(input_ids=piece[None]).logits[0, places].log_softmax(-1)
            with learned.attached(model.network):
                now = model.network(input_ids=piece[None]).logits[0, places].log_softmax(-1)
        kl = torch.nn.functional.kl_div(now, base, log_target=True, reduction="batchmean")
        return WEIGHT * kl.item()

    steepness = sum(g.square().sum().item() for g in gradients.values())
    small = 1e-3 / steepness**0.5
    slope = (divergence(small) - divergence(-small)) / (2 * small)
    assert slope == pytest.approx(steepness, rel=0.02)
    assert divergence(0) > 0.01


def test_an_unchanged_model_has_nothing_to_be_held_to(llama):
    learned = LearnedScales("head", llama)
    with learned.attached(llama.network):
        Replay(llama, Prompts(llama), seed=0).backward(1)
    assert all(p.grad.abs().max() < 1e-5 for p in learned.parameters.values())


def test_the_guard_reads_other_prose_than_the_model_is_held_to(llama):
    prompts = Prompts(llama)
    held = {
        tuple(p.tolist()[i : i + 40]) for p in Replay(llama, prompts, 0).pieces for i in (1, 90)
    }
    read = [piece for text in built_in_texts(prompts, 2048, 0) for piece in text.pieces]
    assert not any(tuple(r[i : i + 40]) in held for r in read for i in range(len(r)))


def moved(kind, model, rate=0.1):
    """How far each number moves whose gradient is 1 in the first tensor's first row, else 0.01."""
    learned = learned_of(kind, model, seed=0)
    before = {name: p.detach().clone() for name, p in learned.parameters.items()}
    for parameter in learned.parameters.values():
        parameter.grad = torch.full_like(parameter, 0.01)
    first = next(iter(learned.parameters))
    learned.parameters[first].grad[0] = 1.0
    Optimiser(learned, damped=kind == "channel").step(rate)
    ways = {n: (p.detach() - before[n]).abs() for n, p in learned.parameters.items()}
    return ways[first][0].mean().item(), ways[first][1:].mean().item()


def test_a_scale_on_which_little_depends_moves_little(llama):
    much, little = moved("channel", llama)
    sizes = 1.0, 0.01
    numbers = sum(site.channels for site in llama.sites)
    row = llama.sites[0].width
    mean = (row * sizes[0] + (numbers - row) * sizes[1]) / numbers
    assert much == pytest.approx(0.1 / (1 + mean), rel=1e-4)
    assert little == pytest.approx(0.1 * 0.01 / (0.01 + mean), rel=1e-4)


def test_low_rank_updates_are_not_damped(llama):
    much, little = moved("lora", llama)
    assert much == pytest.approx(little, rel=1e-3)
