"""Many questions on one context cost one pass over it, and change nothing in loss or gradient."""

from copy import deepcopy
from dataclasses import replace

import pytest
import tiny
import torch
from torch.func import functional_call

from longseal.models.generation import generate
from longseal.models.saving import saving
from longseal.models.shared_context import shares_context
from longseal.tasks.loss import loss

NAMES = ["llama", "gpt2", "mistral"]
LONG = tiny.encoded(context=140)  # beyond the 96 tokens of Mistral's window


def ordinary(network, encoded, scales):
    """Loss and gradients of one ordinary sample a question, weights multiplied by hand, float64."""
    network = deepcopy(network).double()
    deltas, weights = {}, {}
    for name, projection in tiny.projections(network).items():
        deltas[name] = scales.deltas[name].detach().double().requires_grad_()
        inputs = projection.weight.shape[0 if hasattr(projection, "nx") else 1]
        width = inputs // deltas[name].shape[0]
        scale = 1 + deltas[name].expand(-1, width).flatten()
        scale = scale[:, None] if hasattr(projection, "nx") else scale
        weights[f"{name}.weight"] = projection.weight.detach() * scale
    total, count = torch.zeros((), dtype=torch.float64), 0
    for question, answer in zip(encoded.questions, encoded.answers, strict=True):
        row = torch.tensor([[*encoded.context, *question, *answer]])
        logits = functional_call(network, weights, kwargs={"input_ids": row}).logits[0]
        said = logits[-len(answer) - 1 : -1].log_softmax(-1)
        total = total - said.gather(1, torch.tensor(answer)[:, None]).sum()
        count += len(answer)
    (total / count).backward()
    return (total / count).item(), {name: delta.grad for name, delta in deltas.items()}


def packed(model, encoded, scales):
    for delta in scales.deltas.values():
        delta.requires_grad_()
    with scales.attached(model.network):
        value = loss(model, encoded, backward=True)
    return value, {name: delta.grad for name, delta in scales.deltas.items()}


@pytest.mark.parametrize("way", ["everything", "layers"])
@pytest.mark.parametrize("kind", ["head", "channel"])
@pytest.mark.parametrize("name", NAMES)
def test_loss_and_gradients_equal_those_of_ordinary_samples(loaded, plain, name, kind, way):
    model = loaded(name)
    scales = tiny.random_scales(model, kind)
    with saving(model.network, way):
        value, gradients = packed(model, LONG, scales)
    expected, expected_gradients = ordinary(plain(name), LONG, scales)

    assert value == pytest.approx(expected, rel=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    for site, gradient in gradients.items():
        wanted = expected_gradients[site]
        assert (gradient - wanted).norm() <= 1e-5 * wanted.norm(), site
        assert wanted.abs().min() > 0


def test_loss_of_an_unchanged_model_equals_transformers_own_loss(loaded, plain):
    sample = tiny.encoded(blocks=((6, 5),))
    row = torch.tensor([[*sample.context, *sample.questions[0], *sample.answers[0]]])
    labels = row.clone()
    labels[:, : -len(sample.answers[0])] = -100
    expected = plain("llama")(input_ids=row, labels=labels).loss.item()
    assert loss(loaded("llama"), sample) == pytest.approx(expected, rel=1e-5)


def test_gradients_of_several_samples_add_up(llama):
    samples = [tiny.encoded(), tiny.encoded(context=23)]
    apart = [packed(llama, sample, tiny.random_scales(llama, "head"))[1] for sample in samples]
    together = tiny.random_scales(llama, "head")
    for sample in samples:
        packed(llama, sample, together)
    for name, delta in together.deltas.items():
        torch.testing.assert_close(delta.grad, apart[0][name] + apart[1][name])


def test_checkpointing_runs_layers_again_and_leaves_no_trace(llama):
    scales, ran = tiny.random_scales(llama, "head"), []
    hook = llama.network.model.layers[1].mlp.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        with saving(llama.network, "layers"):
            packed(llama, LONG, scales)
        assert len(ran) == 2
        ran.clear()
        packed(llama, LONG, scales)
        assert len(ran) == 1
    finally:
        hook.remove()
    assert not any(module.training for module in llama.network.modules())


def answer_logits(model, encoded):
    """Logits at the places that predict answer tokens, as `lm_head` gives them in `loss`."""
    seen = []
    hook = model.network.lm_head.register_forward_hook(lambda _m, _i, out: seen.append(out[0]))
    try:
        loss(model, encoded)
    finally:
        hook.remove()
    return torch.cat(seen)


@pytest.mark.parametrize("name", NAMES)
def test_a_question_never_sees_another(loaded, name):
    model, one = loaded(name), tiny.encoded()
    other = replace(
        one,
        questions=(one.questions[0], tuple(tiny.tokens(9, 77)), one.questions[2]),
        answers=(one.answers[0], tuple(tiny.tokens(6, 78)), one.answers[2]),
    )
    lengths = [len(answer) for answer in one.answers]
    before = answer_logits(model, one).split(lengths)
    after = answer_logits(model, other).split(lengths)
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(after[2], before[2], rtol=0, atol=1e-6)
    assert (after[1] - before[1]).abs().max() > 0.1


def test_the_order_of_questions_does_not_matter(llama):
    one = tiny.encoded()
    turned = replace(one, questions=one.questions[::-1], answers=one.answers[::-1])
    assert loss(llama, turned) == pytest.approx(loss(llama, one), rel=1e-6)


def test_windowed_layers_do_not_share_a_context(loaded):
    shares = {name: shares_context(loaded(name).network) for name in NAMES}
    assert shares == {"llama": True, "gpt2": True, "mistral": False}


def head_rows(network, work):
    """How many places `lm_head` sees in each call."""
    rows = []
    hook = network.lm_head.register_forward_pre_hook(lambda _m, args: rows.append(args[0].shape))
    try:
        work()
    finally:
        hook.remove()
    return rows


def test_the_loss_shows_lm_head_answer_positions_only(llama):
    shared = head_rows(llama.network, lambda: loss(llama, LONG))
    assert shared == [(1, 4 + 6 + 1, 48)]


def test_without_a_shared_context_lm_head_sees_answer_positions_only_too(loaded):
    model = loaded("mistral")
    assert head_rows(model.network, lambda: loss(model, LONG)) == [
        (1, 4, 48),
        (1, 6, 48),
        (1, 1, 48),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_generation_never_shows_lm_head_a_whole_prompt(loaded, name):
    model = loaded(name)
    rows = head_rows(
        model.network,
        lambda: list(generate(model, [LONG], max_new_tokens=4, stop_tokens=[1])),
    )
    assert max(batch * length for batch, length, _ in rows) <= len(LONG.questions)
