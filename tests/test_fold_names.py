"""A projection is found under whatever name its checkpoint has for it, and never by a guess."""

import json
import shutil

import folding
import pytest
import tiny
import torch
import zoo
from safetensors.torch import save_file

import longseal
from longseal import Adapter, fold
from longseal.errors import LongsealError
from longseal.fold.names import Names, Source, empty_network
from longseal.models.fingerprint import fingerprint
from longseal.models.structure import find_structure
from longseal.scales import Scales

#: Family: what the files call one of its attentions, and what the model calls it.
RENAMED = {
    "gemma3": (
        "language_model.model.layers.0.self_attn",
        "model.language_model.layers.0.self_attn",
    ),
    "nemotron_h": ("backbone.layers.2.mixer", "model.layers.2.mixer"),
    "hrm_text": ("model.L_module.layers.0.attn", "model.L_module.layers.0.self_attn"),
}


def adapter_for(network):
    random = torch.Generator().manual_seed(3)
    zeros = Scales.zeros("channel", find_structure(network).sites)
    deltas = {n: 0.3 * torch.randn(d.shape, generator=random) for n, d in zeros.deltas.items()}
    return Adapter(Scales("channel", zeros.sites, deltas), "base", fingerprint(network), {})


@torch.no_grad()
def logits(network):
    return network(**zoo.inputs(network)).logits


@pytest.fixture(scope="module", params=RENAMED)
def renamed(request, tmp_path_factory):
    network = zoo.build(request.param)
    folder = tmp_path_factory.mktemp("renamed") / "base"
    network.save_pretrained(folder)
    return request.param, network, folder


def test_names_that_transformers_changes_on_load(renamed, tmp_path):
    family, network, base = renamed
    adapter = adapter_for(network)
    adapter.save(tmp_path / "adapter")
    fold(base, tmp_path / "adapter", tmp_path / "target")
    before, after = (folding.read(f / "model.safetensors") for f in (base, tmp_path / "target"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    stored, called = RENAMED[family]
    assert f"{stored}.o_proj.weight" in changed
    assert f"{called}.o_proj" in {site.name for site in adapter.scales.sites}
    assert f"{called}.o_proj.weight" not in before
    assert len(changed) == len(adapter.scales.sites)  # so no vision tower's projection is
    with adapter.scales.attached(network):
        hooked = logits(network)
    again = type(network).from_pretrained(tmp_path / "target").eval()
    torch.testing.assert_close(logits(again), hooked, rtol=1e-5, atol=1e-5)


def test_other_weights_under_changed_names_are_another_base(renamed, tmp_path):
    _, network, base = renamed
    adapter = adapter_for(network)
    for name in ("first", "other"):
        shutil.copytree(base, tmp_path / name)
    path = tmp_path / "other" / "model.safetensors"
    tensors = folding.read(path)
    spoilt = next(name for name in tensors if "o_proj" in name)
    tensors[spoilt] = tensors[spoilt] * 1.5
    save_file(tensors, path, {"format": "pt"})
    fold(tmp_path / "first", adapter, tmp_path / "target")
    with pytest.raises(LongsealError, match=r"another base.*o_proj"):
        fold(tmp_path / "other", adapter, tmp_path / "none")


def rename(folder, change):
    """Save a checkpoint of one file under other names."""
    path = folder / "model.safetensors"
    save_file({change(k): v for k, v in folding.read(path).items()}, path, {"format": "pt"})


@pytest.mark.parametrize("loaded_first", [True, False])
def test_a_checkpoint_without_the_model_s_prefix(tmp_path, loaded_first):
    """As GPT-2's on the hub: `h.0...`, which transformers loads as `transformer.h.0...`."""
    base = tiny.save(tmp_path / "base", tiny.GPT2)
    model = longseal.load(base, device="cpu")
    adapter = folding.adapter_of(model)
    before = folding.tensors(base)
    rename(base, lambda name: name.removeprefix("transformer."))
    folded = fold(model if loaded_first else base, adapter, tmp_path / "target")
    after = folding.tensors(tmp_path / "target")
    assert after.keys() == {name.removeprefix("transformer.") for name in before}
    name = "h.0.attn.c_proj.weight"
    factor = adapter.scales.scale(adapter.scales.sites[0])[:, None]
    assert torch.equal(after[name], before[f"transformer.{name}"] * factor)
    assert (folded.logit_difference is None) is not loaded_first
    assert loaded_first is False or folded.logit_difference < 1e-4


def test_no_suffix_is_guessed(tmp_path):
    """`extra.model.layers...` ends as the projection's name does, and is none."""
    base = tiny.save(tmp_path / "base")
    model = longseal.load(base, device="cpu")
    rename(base, lambda name: f"extra.{name}")
    with pytest.raises(LongsealError, match=r"no tensor model\.layers\.0\.self_attn"):
        fold(base, folding.adapter_of(model), tmp_path / "target")


def test_a_model_with_code_of_its_own_is_folded_by_its_exact_names(tmp_path):
    base = tiny.save(tmp_path / "base")
    adapter = folding.adapter_of(longseal.load(base, device="cpu"))
    config = json.loads((base / "config.json").read_text())
    own = {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"},
    }
    (base / "config.json").write_text(json.dumps(config | own))
    (base / "own.py").write_text("raise SystemExit('was run')\n")
    assert empty_network(base) is None
    fold(base, adapter, tmp_path / "target")
    assert (tmp_path / "target" / "own.py").read_bytes() == (base / "own.py").read_bytes()
    rename(base, lambda name: name.removeprefix("model."))
    with pytest.raises(LongsealError, match="--check --trust-remote-code"):
        fold(base, adapter, tmp_path / "none")


def test_a_tensor_that_transformers_makes_of_several_is_named_and_refused():
    network = zoo.build("mixtral")
    experts = "model.layers.0.block_sparse_moe.experts"
    keys = [f"{experts}.{i}.w{n}.weight" for i in range(4) for n in (1, 2, 3)]
    found = Names(keys, lambda: network).find("model.layers.0.mlp.experts.gate_up_proj")
    assert "MergeModulelist, Concatenate" in found.changed


def test_two_tensors_that_both_fit_are_not_chosen_from():
    network = zoo.build("nemotron_h")
    keys = ["backbone.norm_f.weight", "model.norm_f.weight", "backbone.x", "model.y"]
    names = Names(keys[:1], lambda: network)
    assert names.find("model.norm_f.weight") == Source("backbone.norm_f.weight")
    exact = Names(keys, lambda: network)
    assert exact.find("model.norm_f.weight") == Source("model.norm_f.weight")
    assert "both fit" in exact.loaded["model.norm_f.weight"].changed


def test_no_network_is_made_where_all_names_are_exact(checkpoint, llama, tmp_path, monkeypatch):
    from longseal.fold import plan

    def made(_):
        raise AssertionError("a network was made")

    monkeypatch.setattr(plan, "empty_network", made)
    fold(checkpoint("llama"), folding.adapter_of(llama), tmp_path / "target")
