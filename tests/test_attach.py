"""Several adapters of one base: switched between passes, or one for each row."""

import pytest
import tiny
import torch

from longseal import Adapter, LongsealError, attached


def of(model, seed, kind="channel", **record):
    return Adapter.of(model, tiny.random_scales(model, kind, seed=seed), record)


@pytest.fixture
def pair(llama):
    return {"lines": of(llama, 1, "head"), "needle": of(llama, 2)}


def batch(lengths=(20, 13, 7)):
    """Rows of different lengths, padded on the left."""
    longest = max(lengths)
    rows = [[1] * (longest - n) + tiny.tokens(n, seed=n) for n in lengths]
    mask = [[0] * (longest - n) + [1] * n for n in lengths]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


@torch.no_grad()
def logits(model, inputs=None):
    return model.network(**(batch() if inputs is None else inputs)).logits


def alone(model, adapter, inputs=None):
    if adapter is None:
        return logits(model, inputs)
    with adapter.attached(model):
        return logits(model, inputs)


def bits(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_adapters_are_switched_between_passes(llama, pair):
    before = bits(llama.network)
    expected = {None: logits(llama)} | {name: by_hand(llama, a) for name, a in pair.items()}
    with attached(llama, pair) as active:
        assert torch.equal(logits(llama), expected[None])
        for name in ("lines", "needle", None, "lines"):
            active.use(name)
            torch.testing.assert_close(logits(llama), expected[name], rtol=1e-5, atol=1e-5)
    assert torch.equal(logits(llama), expected[None])
    assert all(torch.equal(t, before[name]) for name, t in llama.network.state_dict().items())


def by_hand(model, adapter):
    """The hooks' effect without longseal's own hooks."""
    handles = []
    for site in model.sites:
        factor = tiny.factors(adapter.scales, site.name, site.width)
        module = model.network.get_submodule(site.name)
        handles.append(
            module.register_forward_pre_hook(lambda _, args, f=factor: (args[0] * f, *args[1:]))
        )
    try:
        return logits(model)
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("kinds", [("head", "head"), ("head", "channel"), ("channel", "channel")])
def test_each_row_gets_its_own_adapter(loaded, name, kinds):
    model = loaded(name)
    adapters = {str(i): of(model, i, kind) for i, kind in enumerate(kinds)}
    expected = {key: alone(model, adapter) for key, adapter in adapters.items()}
    expected[None] = logits(model)
    for rows in (["0", None, "1"], ["1", "1", "0"], [None, None, None]):
        with attached(model, adapters) as active:
            active.rows(rows)
            found = logits(model)
        for i, row in enumerate(rows):
            assert torch.equal(found[i], expected[row][i])
    assert (expected["0"] - expected["1"]).abs().max() > 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 4, "temperature": 1e-4},
    ],
    ids=["greedy", "beams", "samples"],
)
def test_generation_keeps_each_rows_adapter(llama, pair, options):
    inputs = batch()
    options = {**options, "max_new_tokens": 8, "pad_token_id": 1, "eos_token_id": None}
    times = options.get("num_return_sequences", 1)

    def generated():
        torch.manual_seed(0)
        return llama.network.generate(**inputs, **options).view(3, times, -1)

    with attached(llama, pair) as active:
        by_name = {}
        for name in ("lines", "needle", None):
            active.use(name)
            by_name[name] = generated()
        rows = ["needle", None, "lines"]
        active.rows(rows)
        found = generated()
    for i, row in enumerate(rows):
        assert torch.equal(found[i], by_name[row][i])
    assert not torch.equal(by_name["lines"], by_name["needle"])


def test_a_batch_that_rows_do_not_fit_is_refused_when_it_is_run(llama, pair):
    with attached(llama, pair) as active:
        active.rows(["lines", "needle"])
        with pytest.raises(LongsealError, match="2 rows, and the batch has 3"):
            logits(llama)
        active.use("lines")
        logits(llama)


def test_a_projection_without_a_row_dimension_is_refused(llama, pair):
    projection = llama.network.get_submodule(llama.sites[0].name)
    with attached(llama, pair) as active:
        active.rows(["lines"])
        with pytest.raises(LongsealError, match=r"\(5, 72\), not \(batch, seq, channels\)"):
            projection(torch.zeros(5, 72))
        active.use("lines")
        projection(torch.zeros(5, 72))


def test_names_that_are_not_there_are_refused_and_change_nothing(llama, pair):
    with attached(llama, pair) as active:
        active.use("lines")
        said = logits(llama)
        for choose in (lambda: active.use("line"), lambda: active.rows(["lines", "x", None])):
            with pytest.raises(LongsealError, match="there are lines, needle"):
                choose()
        for nothing in ([], "lines"):
            with pytest.raises(LongsealError, match="for each row"):
                active.rows(nothing)
        assert torch.equal(logits(llama), said)
    with pytest.raises(LongsealError, match="detached"):
        active.use("lines")


def test_nothing_to_attach_is_refused(llama):
    with pytest.raises(LongsealError, match="nothing to attach"), attached(llama, {}):
        pass


def test_one_of_another_base_is_refused_and_nothing_is_attached(llama, loaded, pair):
    foreign = of(loaded("other"), 3)
    with (
        pytest.raises(LongsealError, match="another base"),
        attached(llama, pair | {"foreign": foreign}),
    ):
        pass
    with pair["lines"].attached(llama):
        pass


def test_attaching_twice_is_refused_in_every_order(llama, pair):
    ways = [
        lambda: attached(llama, pair),
        lambda: pair["lines"].attached(llama),
        lambda: pair["needle"].scales.attached(llama.network),
    ]
    for first in ways:
        for second in ways:
            with (
                first(),
                pytest.raises(LongsealError, match="attached to this model already"),
                second(),
            ):
                pass
            assert not any(m._forward_pre_hooks for m in llama.network.modules())


def test_an_exception_in_the_block_detaches(llama, pair):
    before, said = bits(llama.network), logits(llama)
    with pytest.raises(KeyboardInterrupt), attached(llama, pair):
        raise KeyboardInterrupt
    assert torch.equal(logits(llama), said)
    assert all(torch.equal(t, before[name]) for name, t in llama.network.state_dict().items())


def test_inference_mode_leaves_nothing_that_a_gradient_stumbles_over(llama, pair):
    with attached(llama, pair) as active:
        active.use("lines")
        with torch.inference_mode():
            logits(llama)
        embedded = llama.network.get_input_embeddings()(batch()["input_ids"]).requires_grad_()
        llama.network(inputs_embeds=embedded).logits.sum().backward()
    assert embedded.grad.abs().max() > 0
