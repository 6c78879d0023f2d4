"""A base in 4 or 8 bits is loaded, and tuned with deltas in float32."""

from copy import deepcopy

import pytest
import tiny
import torch
from torch import nn

import longseal
from longseal.errors import LongsealError
from longseal.models.load import LanguageModel, load_alike
from longseal.models.saving import saving
from longseal.tasks.loss import loss
from longseal.tuning.learned import LearnedScales

#: Widths are whole blocks of 64 weights, in which they are quantised.
WIDE = tiny.LLAMA | {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "head_dim": 32,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("wide") / "wide", WIDE)


def gradients(model, way="everything"):
    learned = LearnedScales("channel", model)
    with learned.attached(model.network), saving(model.network, way):
        loss(model, tiny.encoded(), backward=True)
    return torch.cat([number.grad.flatten() for number in learned.parameters.values()])


def unpacked(model):
    """The same network with the quantised weights as plain ones."""
    functional = pytest.importorskip("bitsandbytes").functional
    network = deepcopy(model.network)
    for name, module in list(network.named_modules()):
        weight = getattr(module, "weight", None)
        if not hasattr(weight, "quant_state"):
            continue
        plain = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        plain.weight = nn.Parameter(functional.dequantize_4bit(weight.data, weight.quant_state))
        plain.bias = module.bias
        parent, _, last = name.rpartition(".")
        setattr(network.get_submodule(parent), last, plain)
    network.requires_grad_(False)
    return LanguageModel("", network, model.tokenizer, model.structure, model.window)


@pytest.mark.parametrize("way", ["everything", "attention", "tiles"])
def test_gradients_on_a_4_bit_base_are_those_of_its_unpacked_weights(folder, way):
    pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    model = longseal.load(folder, device="cpu", dtype="float32", quantize="4bit")
    expected = gradients(unpacked(model))
    found = gradients(model, way)
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 1e-3 * expected.norm()
    assert (found - gradients(longseal.load(folder, device="cpu"))).norm() > 0.1 * found.norm()


def test_gradients_on_an_8_bit_base_are_near_those_of_the_plain_one(folder):
    pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    model = longseal.load(folder, device="cpu", dtype="float32", quantize="8bit")
    plain = gradients(longseal.load(folder, device="cpu"))
    found = gradients(model)
    assert torch.cosine_similarity(found, plain, dim=0) > 0.9
    assert not torch.equal(found, plain)


def test_a_checkpoint_is_loaded_in_as_many_bits_as_the_model_beside_it(folder):
    pytest.importorskip("bitsandbytes", reason="quantised weights need bitsandbytes")
    model = longseal.load(folder, device="cpu", dtype="float32", quantize="4bit")
    other = load_alike(model, folder)
    projection = model.sites[0].name
    weights = [m.network.get_submodule(projection).weight for m in (model, other)]
    assert weights[0].dtype == torch.uint8
    assert torch.equal(*weights)


def test_without_bitsandbytes_quantising_is_refused_with_what_to_install(folder, monkeypatch):
    monkeypatch.setattr("longseal.models.load.is_bitsandbytes_available", lambda: False)
    with pytest.raises(LongsealError, match=r"pip install 'longseal\[bitsandbytes\]'"):
        longseal.load(folder, device="cpu", quantize="4bit")


def test_a_gguf_file_is_not_quantised_again(tmp_path):
    (tmp_path / "model.gguf").touch()
    with pytest.raises(LongsealError, match="is quantised already"):
        longseal.load(tmp_path / "model.gguf", device="cpu", quantize="8bit")
