"""What is not an adapter as PEFT and longseal write it is refused, in one clear line."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from longseal import Adapter
from longseal.errors import LongsealError

ROW = torch.tensor([tiny.tokens(50)])


@torch.no_grad()
def hooked(model, adapter):
    with adapter.attached(model):
        return model.network(input_ids=ROW).logits


def made(model, kind="channel"):
    return Adapter.of(model, tiny.random_scales(model, kind), {})


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


def with_key(change):
    """One vector under another name."""

    def damage(folder: Path):
        tensors = load_file(folder / "adapter_model.safetensors")
        name = sorted(tensors)[1]
        tensors[change(name)] = tensors[name].clone()
        save_file(tensors, folder / "adapter_model.safetensors")

    return damage


def pickled(folder: Path):
    path = folder / "adapter_model.safetensors"
    torch.save(load_file(path), folder / "adapter_model.bin")
    path.unlink()


def json_with(name, **fields):
    def damage(folder: Path):
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(values | fields))

    return damage


def site_with(**fields):
    def damage(folder: Path):
        record = json.loads((folder / "longseal.json").read_text())
        record["sites"][1] |= fields
        (folder / "longseal.json").write_text(json.dumps(record))

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
    "one number for all": changed(lambda tensor: tensor[:, :1]),
    "a channel too many": changed(lambda tensor: torch.cat([tensor, tensor[:, :1]], 1)),
    "no first dimension": changed(lambda tensor: tensor[0]),
    "a dimension too many": changed(lambda tensor: tensor[None]),
    "two rows": changed(lambda tensor: tensor.repeat(2, 1)),
    "integers": changed(lambda tensor: tensor.long()),
    "a layer twice, once from DDP": with_key(lambda name: f"module.{name}"),
    "a layer twice, once from torch.compile": with_key(
        lambda name: name.replace(".self_attn", "._orig_mod.self_attn")
    ),
    "a pickle": pickled,
    "config missing": lambda folder: (folder / "adapter_config.json").unlink(),
    "config cut off": cut("adapter_config.json"),
    "config is a list": lambda folder: (folder / "adapter_config.json").write_text("[1]"),
    "config of a LoRA": json_with("adapter_config.json", peft_type="LORA"),
    "config without a type": json_with("adapter_config.json", peft_type=None),
    "config that scales outputs": json_with("adapter_config.json", feedforward_modules=[]),
    "config that is no regex": json_with("adapter_config.json", feedforward_modules="("),
    "record of another kind": json_with("longseal.json", kind="layer"),
    "record of no site": json_with("longseal.json", sites=[]),
    "record with a site twice": site_with(name="model.layers.0.self_attn.o_proj"),
    "record with a size below zero": site_with(n_heads=-6, width=-12),
    "record with a third axis": site_with(input_axis=2),
    "record with a width that is a word": site_with(width="wide"),
    "record whose values are a number": site_with(values=3),
    "record whose fingerprint is a word": json_with("longseal.json", base_fingerprint="x"),
    "NaN": at_one_place(float("nan")),
    "infinity": at_one_place(float("inf")),
    "weights missing": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "weights cut off": cut("adapter_model.safetensors"),
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


def test_a_pickle_is_refused_with_the_reason_and_not_opened(llama, tmp_path):
    made(llama).save(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    (tmp_path / "adapter" / "adapter_model.bin").write_bytes(b"no pickle at all")
    with pytest.raises(LongsealError, match=r"adapter_model\.bin, a pickle, which can run code"):
        Adapter.load(tmp_path / "adapter")


def test_a_lora_is_told_what_to_do(llama, tmp_path):
    made(llama).save(tmp_path / "adapter")
    json_with("adapter_config.json", peft_type="LORA")(tmp_path / "adapter")
    with pytest.raises(LongsealError, match=r"type LORA.*merge_and_unload"):
        Adapter.load(tmp_path / "adapter")


PREFIXES = {
    "DDP": lambda name: f"module.{name}",
    "DDP inside PEFT": lambda name: name.replace("base_model.model.", "base_model.model.module."),
    "compiled": lambda name: f"_orig_mod.{name}",
    "compiled layers": lambda name: name.replace(".self_attn", "._orig_mod.self_attn"),
    "both": lambda name: f"module._orig_mod.{name}".replace(".o_proj", ".o_proj._orig_mod"),
}


@pytest.mark.parametrize("rename", PREFIXES.values(), ids=PREFIXES.keys())
def test_names_from_ddp_and_torch_compile_are_understood(llama, tmp_path, rename):
    adapter = made(llama)
    adapter.save(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path)
    again = Adapter.load(tmp_path / "adapter")
    assert torch.equal(hooked(llama, again), hooked(llama, adapter))
    (tmp_path / "adapter" / "longseal.json").unlink()
    plain = Adapter.load(tmp_path / "adapter")
    assert torch.equal(hooked(llama, plain), hooked(llama, adapter))


def test_a_folded_model_is_no_adapter(checkpoint, tmp_path):
    folder = tmp_path / "folded"
    shutil.copytree(checkpoint("llama"), folder)
    (folder / "longseal.json").write_text('{"folded": true}')
    with pytest.raises(LongsealError, match="a folded model, not an adapter"):
        Adapter.load(folder)
    with pytest.raises(LongsealError, match="is no adapter"):
        Adapter.load(checkpoint("llama"))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(LongsealError, match="does not exist"):
        Adapter.load(tmp_path / "nothing")
