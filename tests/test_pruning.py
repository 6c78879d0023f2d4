"""Pruning side by side gives what pruning one head after another gives."""

from copy import deepcopy

import pytest
import tiny
import torch

from longseal.errors import LongsealError
from longseal.models.sites import Head, Site, seats
from longseal.probing import side_by_side
from longseal.probing.answers import Asking
from longseal.probing.gradient import slopes
from longseal.probing.heads import named, pruned, scaled, without_channel
from longseal.probing.pruning import Pruning
from longseal.tasks.prompt import Prompts

NAMES = ["llama", "gpt2", "mistral"]
SAMPLE = tiny.encoded(context=140)  # beyond the 96 tokens of Mistral's window


@pytest.fixture
def asking(loaded):
    def made(name):
        model = loaded(name)
        return Asking(model, tiny.Chance(), Prompts(model))

    return made


def multiplied(network, factors):
    """The network with factors multiplied into its weights by hand, float64."""
    network = deepcopy(network).double()
    for name, factor in factors.items():
        projection = network.get_submodule(name)
        column = hasattr(projection, "nx")
        projection.weight.data *= factor.double()[:, None] if column else factor.double()
    return network


def expected(network, sample):
    """Each right answer's log-probability, in a row of its own."""
    found = []
    for question, answer in zip(sample.questions, sample.answers, strict=True):
        row = torch.tensor([[*sample.context, *question, *answer]])
        with torch.no_grad():
            said = network(input_ids=row).logits[0, -len(answer) - 1 : -1].log_softmax(-1)
        found.append(said.gather(1, torch.tensor(answer)[:, None]).sum().item())
    return found


def answers(network, sample, asking):
    """Greedy answers by whole forward passes, scored."""
    found = []
    stop = set(asking.prompts.stop_tokens)
    for question, source in zip(sample.questions, sample.source.questions, strict=True):
        row, said = [*sample.context, *question], []
        while len(said) < asking.task.max_new_tokens:
            with torch.no_grad():
                token = network(input_ids=torch.tensor([row + said])).logits[0, -1].argmax().item()
            if token in stop:
                break
            said.append(token)
        text = asking.prompts.decode(said)[0]
        found.append(asking.task.score(text, source)[asking.task.metric])
    return tuple(found)


def variants(sites):
    """Every head alone, groups over layers, a rescaled one, a channel."""
    heads = [*seats(sites)]
    return [
        *(pruned([head], sites) for head in heads),
        pruned([heads[0], heads[-1], heads[len(heads) // 2]], sites),
        pruned(named("L1", sites), sites),
        scaled("rescaled", {heads[1]: 0.9, heads[-2]: 1.4}, sites),
        without_channel(heads[2], 3, sites),
    ]


@pytest.mark.parametrize("together", [1, 100_000])
@pytest.mark.parametrize("name", NAMES)
def test_side_by_side_equals_one_by_one(asking, plain, name, together, monkeypatch):
    monkeypatch.setattr("longseal.probing.pruning.TOGETHER", together)
    asked = asking(name)
    pruning = Pruning(asked, SAMPLE, answered=True)
    base = pruning.base()
    unchanged = multiplied(plain(name), {})
    assert base.log_probabilities == pytest.approx(expected(unchanged, SAMPLE), rel=1e-5)
    wanted = variants(asked.model.sites)
    found = {variant.name: got for variant, got in pruning.of(wanted)}
    assert set(found) == {variant.name for variant in wanted}
    for variant in wanted:
        changed = multiplied(plain(name), variant.factors)
        values = expected(changed, SAMPLE)
        assert found[variant.name].log_probabilities == pytest.approx(values, rel=1e-5)
        assert found[variant.name].scores == answers(changed, SAMPLE, asked)


@pytest.mark.parametrize("name", NAMES)
def test_the_tail_alone_is_pruned(asking, name):
    """Against hooks that spare the context, one question after another."""
    asked = asking(name)
    pruning = Pruning(asked, SAMPLE, tail=True)
    pruning.base()
    for variant, got in pruning.of(variants(asked.model.sites)):
        for number, (question, answer) in enumerate(
            zip(SAMPLE.questions, SAMPLE.answers, strict=True)
        ):
            row = torch.tensor([[*SAMPLE.context, *question, *answer]])
            handles = []
            for path, factor in variant.factors.items():

                def hook(module, args, factor=factor):
                    hidden = args[0].clone()
                    hidden[:, len(SAMPLE.context) :] *= factor
                    return (hidden, *args[1:])

                module = asked.model.network.get_submodule(path)
                handles.append(module.register_forward_pre_hook(hook))
            with torch.no_grad():
                logits = asked.model.network(input_ids=row).logits[0, -len(answer) - 1 : -1]
            for handle in handles:
                handle.remove()
            value = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum().item()
            assert got.log_probabilities[number] == pytest.approx(value, rel=1e-5)


def test_layers_below_are_not_run_again(asking):
    asked = asking("llama")
    sites = asked.model.sites
    runs = [0] * len(sites)

    def count(layer):
        def hook(module, args, output):
            runs[layer] += 1

        return hook

    layers = asked.model.network.model.layers
    handles = [layers[i].mlp.register_forward_hook(count(i)) for i in range(len(layers))]
    pruning = Pruning(asked, SAMPLE)
    pruning.base()
    runs[:] = [0] * len(runs)
    list(pruning.of([pruned([head], sites) for head in [*seats(sites)]]))
    for handle in handles:
        handle.remove()
    # a pass a layer with all of its heads: each layer in those of the layers up to it, and once
    # more, unchanged, on the way to the next
    assert runs == [2, 3, 3]


def test_a_model_whose_layers_cannot_be_run_one_by_one_is_run_whole(asking, plain, monkeypatch):
    monkeypatch.setattr(side_by_side, "_agrees", lambda network, sites: False)
    monkeypatch.setattr(side_by_side, "_RUNS", {})
    asked = asking("llama")
    pruning = Pruning(asked, SAMPLE, answered=True)
    pruning.base()
    wanted = variants(asked.model.sites)
    for variant, got in pruning.of(wanted):
        changed = multiplied(plain("llama"), variant.factors)
        assert got.log_probabilities == pytest.approx(expected(changed, SAMPLE), rel=1e-5)
        assert got.scores == answers(changed, SAMPLE, asked)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_those_of_small_changes(asking, name):
    asked = asking(name)
    found = slopes(asked.model, SAMPLE)
    pruning = Pruning(asked, SAMPLE)
    base = sum(pruning.base().log_probabilities)
    for head in [*seats(asked.model.sites)][::4]:
        site = next(site for site in asked.model.sites if site.layer == head.layer)
        step = 1e-2
        up, down = (
            sum(
                next(pruning.of([scaled("", {head: 1 + way * step}, asked.model.sites)]))[
                    1
                ].log_probabilities
            )
            for way in (1, -1)
        )
        slope = (up - down) / (2 * step * len(SAMPLE.questions))
        assert found[site.name][head.head].sum().item() == pytest.approx(slope, rel=0.03, abs=2e-3)
    assert base < 0


def test_names(asking):
    sites = asking("llama").model.sites
    assert named("L1H2, l0h5", sites) == [Head(1, 2), Head(0, 5)]
    assert named("L2", sites) == [Head(2, head) for head in range(6)]
    assert named("L0G1", sites) == [Head(0, 3), Head(0, 4), Head(0, 5)]
    assert named("L0H3,L0G1", sites) == [Head(0, 3), Head(0, 4), Head(0, 5)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("L3H0", "L0 to L2"),
        ("L1H6", "H0 to H5"),
        ("L1G2", "G0 to G1"),
        ("head 3", "L1H18"),
        ("", "L1H18"),
    ],
)
def test_heads_that_do_not_exist(asking, name, said):
    with pytest.raises(LongsealError, match=said):
        named(name, asking("llama").model.sites)


def test_layers_that_have_gaps_are_named_one_by_one():
    sites = [Site(f"layers.{n}.o_proj", n, 4, 2, 8, 1) for n in (1, 3, 7)]
    with pytest.raises(LongsealError, match="L1, L3, L7"):
        named("L2", sites)
