"""An adapter on disk is whole, reads back exactly, belongs to one base, and PEFT can use it."""

import json
from pathlib import Path

import pytest
import tiny
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import longseal
from longseal import Adapter
from longseal.errors import LongsealError
from longseal.scales import Scales

KINDS = ["head", "channel"]
ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def logits(network):
    return network(input_ids=ROW).logits


def hooked(model, adapter):
    with adapter.attached(model):
        return logits(model.network)


def made(model, kind="channel", **record):
    return Adapter.of(model, tiny.random_scales(model, kind), record)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_is_saved_is_what_is_read(loaded, tmp_path, name, kind):
    adapter = made(loaded(name), kind, task="lines", settings={"seed": 3})
    adapter.save(tmp_path / "adapter")
    again = Adapter.load(tmp_path / "adapter")
    again.save(tmp_path / "again")

    assert again.kind == kind
    assert again.base == str(loaded(name).source)
    assert again.record["task"] == "lines"
    assert again.record["settings"] == {"seed": 3}
    assert again.scales.sites == adapter.scales.sites
    for site in adapter.scales.sites:
        torch.testing.assert_close(
            again.scales.scale(site), adapter.scales.scale(site), rtol=0, atol=0
        )
    torch.testing.assert_close(
        hooked(loaded(name), again), hooked(loaded(name), adapter), rtol=0, atol=1e-5
    )
    weights = "adapter_model.safetensors"
    assert (tmp_path / "adapter" / weights).read_bytes() == (
        tmp_path / "again" / weights
    ).read_bytes()


def test_the_record_says_how_strongly_each_head_speaks(llama, tmp_path):
    adapter = made(llama, "channel")
    adapter.save(tmp_path / "adapter")
    heads = json.loads((tmp_path / "adapter" / "longseal.json").read_text())["heads"]
    for name, delta in adapter.scales.deltas.items():
        expected = [1 + sum(row) / len(row) for row in delta.tolist()]
        assert heads[name] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_peft_gives_the_hooked_logits(loaded, checkpoint, tmp_path, name, kind):
    adapter = made(loaded(name), kind)
    adapter.save(tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(checkpoint(name))
    before = logits(base)
    network = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    expected = hooked(loaded(name), adapter)

    torch.testing.assert_close(logits(network), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits(network.merge_and_unload()), expected, rtol=1e-5, atol=1e-5)
    assert (expected - before).abs().max() > 0.1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_adapter_loader_of_transformers_gives_the_hooked_logits(
    loaded, checkpoint, tmp_path, name
):
    adapter = made(loaded(name))
    adapter.save(tmp_path / "adapter")
    network = AutoModelForCausalLM.from_pretrained(checkpoint(name))
    network.load_adapter(str(tmp_path / "adapter"))
    torch.testing.assert_close(logits(network), hooked(loaded(name), adapter), rtol=1e-5, atol=1e-5)


def test_other_weights_of_the_same_shape_are_refused(llama, loaded):
    with pytest.raises(LongsealError, match="another base"):
        hooked(loaded("other"), made(llama))


def test_a_base_with_one_tensor_trained_further_is_refused(checkpoint, llama):
    other = longseal.load(checkpoint("llama"), device="cpu")
    with torch.no_grad():
        other.network.model.layers[1].mlp.up_proj.weight.mul_(1.001)
    with pytest.raises(LongsealError, match=r"another base.*up_proj"):
        hooked(other, made(llama))


def test_another_architecture_is_refused(llama, loaded):
    with pytest.raises(LongsealError, match="another base"):
        hooked(loaded("gpt2"), made(llama))


@pytest.mark.parametrize(("first", "second"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_the_same_base_in_another_dtype_is_accepted(checkpoint, first, second):
    model = longseal.load(checkpoint("llama"), dtype=first, device="cpu")
    other = longseal.load(checkpoint("llama"), dtype=second, device="cpu")
    assert hooked(other, made(model)).isfinite().all()


def test_an_adapter_of_another_base_is_refused_in_another_dtype_too(llama, checkpoint):
    other = longseal.load(checkpoint("other"), dtype="bfloat16", device="cpu")
    with pytest.raises(LongsealError, match="another base"):
        hooked(other, made(llama))


def without_a_layer(folder: Path):
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.pop(next(name for name in tensors if ".1." in name))
    save_file(tensors, folder / "adapter_model.safetensors")


def with_a_foreign_tensor(folder: Path):
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(tensors | {"foreign": torch.ones(1)}, folder / "adapter_model.safetensors")


def changed(change):
    def damage(folder: Path):
        tensors = load_file(folder / "adapter_model.safetensors")
        name = sorted(tensors)[1]
        tensors[name] = change(tensors[name]).contiguous()
        save_file(tensors, folder / "adapter_model.safetensors")

    return damage


def at_one_place(value):
    def put(tensor):
        tensor[0, 7] = value
        return tensor

    return changed(put)


def cut(name):
    def damage(folder: Path):
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def record_without(field):
    def damage(folder: Path):
        record = json.loads((folder / "longseal.json").read_text())
        del record[field]
        (folder / "longseal.json").write_text(json.dumps(record))

    return damage


DAMAGES = {
    "a layer is missing": without_a_layer,
    "a tensor too many": with_a_foreign_tensor,
    "wrong shape": changed(lambda tensor: tensor[:, :-1]),
    "another shape of the same size": changed(lambda tensor: tensor.T),
    "NaN": at_one_place(float("nan")),
    "infinity": at_one_place(float("inf")),
    "weights missing": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "weights cut off": cut("adapter_model.safetensors"),
    "record missing": lambda folder: (folder / "longseal.json").unlink(),
    "record cut off": cut("longseal.json"),
    "record is a list": lambda folder: (folder / "longseal.json").write_text("[1]"),
    "record is a word": lambda folder: (folder / "longseal.json").write_text('"word"'),
    "record without sites": record_without("sites"),
    "record without fingerprint": record_without("base_fingerprint"),
    "record without kind": record_without("kind"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_adapter_is_refused_in_one_clear_line(llama, tmp_path, damage):
    made(llama).save(tmp_path / "adapter")
    damage(tmp_path / "adapter")
    with pytest.raises(LongsealError, match="adapter") as refused:
        Adapter.load(tmp_path / "adapter")
    assert len(str(refused.value).splitlines()) == 1


def test_a_head_adapter_whose_channels_differ_is_refused(llama, tmp_path):
    made(llama, "head").save(tmp_path / "adapter")
    at_one_place(1.7)(tmp_path / "adapter")
    with pytest.raises(LongsealError, match="damaged"):
        Adapter.load(tmp_path / "adapter")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(LongsealError, match="does not exist"):
        Adapter.load(tmp_path / "nothing")


def test_the_strength_is_kept_when_an_adapter_is_saved_weaker(llama, tmp_path):
    adapter = made(llama)
    adapter.times(0.25).save(tmp_path / "weaker")
    again = Adapter.load(tmp_path / "weaker")
    for site in llama.sites:
        expected = 1 + (adapter.scales.scale(site) - 1) / 4
        torch.testing.assert_close(again.scales.scale(site), expected)


def test_saving_never_throws_away_what_is_no_adapter(llama, tmp_path):
    adapter = Adapter.of(llama, Scales.zeros("head", llama.sites), {})
    (tmp_path / "precious").write_text("x")
    with pytest.raises(LongsealError, match="no adapter"):
        adapter.save(tmp_path)
    assert (tmp_path / "precious").read_text() == "x"
    adapter.save(tmp_path / "adapter")
    adapter.save(tmp_path / "adapter")  # an adapter may be replaced
    assert Adapter.load(tmp_path / "adapter").scales.unchanged
