"""Heads are found in whatever a pass does, whatever its modules and classes are called."""

import json
import re

import pytest
import tiny
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import longseal
from longseal.errors import LongsealError
from longseal.models import structure
from longseal.models.sites import ValueRows
from longseal.models.structure import find_structure

HEADS, GROUPS, WIDTH, HIDDEN = 6, 2, 12, 48


class Mixer(nn.Module):
    """Attention under names that say nothing; `way` changes how it is computed."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.a = nn.Linear(HIDDEN, (HEADS + 2 * GROUPS) * WIDTH)
        self.b = nn.Linear(HEADS * WIDTH, HIDDEN)
        self.c = nn.Linear(HIDDEN, HEADS * WIDTH)
        self.shrink = nn.LayerNorm(HEADS * WIDTH)

    def forward(self, hidden_states, **_):
        x, way = hidden_states, self.way
        batch, length, _ = x.shape
        q, k, v = self.a(x).split([HEADS * WIDTH, GROUPS * WIDTH, GROUPS * WIDTH], -1)
        if way == "v is k":
            v = k
        if way == "v is squashed":
            v = v.tanh()
        if way == "v is squashed in place":
            k.add_(1)  # which shares its memory with v
            v.tanh_()
        if way == "v is filled":
            v = v.clone()
            v[..., 3] = 5.0
        if way == "v is masked":
            v = v.masked_fill(v > 0, 1.0)
        if way == "v is sorted":
            v = v.sort(-1)[0]
        if way == "v is shifted":
            v = v + v.roll(1, -1)
        if way == "v is rounded":
            v = torch.div(v, 0.1, rounding_mode="floor")
        if way == "v is cast to integers":
            v = (4 * v).to(torch.int32).float()
        if way == "v is read":
            v = v / float(v.max())
        if way == "v as a shape":
            v = x[..., :1].expand_as(v).type_as(v)
        if way == "k from v's weight":
            rows = slice((HEADS + GROUPS) * WIDTH, None)
            k = F.linear(x, self.a.weight[rows], self.a.bias[rows])
        if way == "a buffer":
            whole = v.new_zeros(batch, length, GROUPS * WIDTH)
            whole[..., :WIDTH].copy_(v[..., :WIDTH])
            whole[..., WIDTH:].copy_(v[..., WIDTH:].tanh())
            v = whole
        q = q.view(batch, length, HEADS, WIDTH).transpose(1, 2)
        k, v = (
            t.view(batch, length, GROUPS, WIDTH).transpose(1, 2).repeat_interleave(3, 1)
            for t in (k, v)
        )
        if way == "linear":
            heads = q @ (k.transpose(2, 3) @ v) / length
        elif way == "fused":
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / WIDTH**0.5
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -1e9)
            if way == "a sink":
                scores = torch.cat([scores, scores.new_ones(batch, HEADS, length, 1)], -1)
            probabilities = scores.softmax(-1)[..., :length]
            if way == "einsum":
                heads = torch.einsum("bhqk,bhkd->bqhd", probabilities, v).transpose(1, 2)
            else:
                heads = probabilities @ v
        if way == "channels first":
            joined = heads.permute(0, 2, 3, 1).reshape(batch, length, -1)
        elif way == "heads are summed":
            joined = torch.einsum("bhqk,bhkd->bqd", probabilities[:, 1:], v[:, 1:]).repeat(1, 1, 6)
        elif way == "more than heads":
            joined = torch.cat([heads.transpose(1, 2).flatten(2)[..., WIDTH:], x[..., :WIDTH]], -1)
        else:
            joined = heads.transpose(1, 2).flatten(2)
        if way == "a norm":
            joined = self.shrink(joined)
        if way == "a gate":
            joined = joined * torch.sigmoid(self.c(x))
        if way == "a gate of its own":
            joined = joined * torch.sigmoid(joined)
        if way == "an offset":
            joined = joined + 1
        if way == "a second use":
            return self.b(joined) + v.tanh().mean(), None
        if way == "a square":
            joined = joined * joined
        if way == "a divisor":
            joined = 1 / joined
        if way == "a quotient":
            joined = x.new_ones(1) / joined
        if way == "the projection again":
            return self.b(joined) + self.b(joined.tanh()), None
        if way == "no module":
            return F.linear(joined, self.b.weight, self.b.bias), None
        return self.b(joined), None


def mixed(*ways: str):
    """A tiny model whose layers compute attention in these ways."""
    made = tiny.network(tiny.LLAMA | {"num_hidden_layers": len(ways)})
    torch.manual_seed(0)
    for layer, way in zip(made.model.layers, ways, strict=True):
        layer.self_attn = Mixer(way)
        for parameter in layer.self_attn.parameters():
            nn.init.normal_(parameter, std=0.3)
    return made.eval()


V_ROWS = tuple((HEADS + GROUPS) * WIDTH + group * WIDTH for group in (0, 0, 0, 1, 1, 1))


@pytest.mark.parametrize("way", ["plain", "fused", "einsum", "a sink", "a gate"])
def test_heads_and_the_rows_of_their_values_are_found(way):
    structure = find_structure(mixed(way, way))
    assert structure.skipped == {}
    for i, site in enumerate(structure.sites):
        assert (site.name, site.layer) == (f"model.layers.{i}.self_attn.b", i)
        assert (site.n_heads, site.n_kv_heads, site.width) == (HEADS, GROUPS, WIDTH)
        assert site.input_axis == 1
        assert site.values == ValueRows(f"model.layers.{i}.self_attn.a", 0, V_ROWS)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("v is k", "used in another place"),
        ("a second use", "used in another place"),
        ("v is squashed", "tanh stands between"),
        ("v is squashed in place", "stands between"),
        ("v is filled", "do not come from one projection"),
        ("v is masked", "masked_fill stands between"),
        ("v is sorted", "stands between"),
        ("v is shifted", "add stands between"),
        ("a buffer", "stands between"),
        ("v is rounded", "stands between"),
        ("v is cast to integers", "stands between"),
        ("v is read", "used in another place"),
        ("v as a shape", "stands between|not come from|used in another place"),
        ("k from v's weight", "used in another place too"),
        ("the projection again", "runs more than once"),
        ("a norm", "LayerNorm stands between"),
        ("a gate of its own", "mul stands between"),
        ("an offset", "add stands between"),
        ("a square", "mul stands between"),
        ("a divisor", "rtruediv|reciprocal|div"),
        ("a quotient", "div stands between"),
    ],
)
def test_what_forbids_folding_into_the_values_is_said(way, reason):
    (site,) = find_structure(mixed(way)).sites
    assert (site.n_heads, site.width) == (HEADS, WIDTH)
    assert isinstance(site.values, str)
    assert re.search(reason, site.values)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("linear", "no softmax over positions"),
        ("no module", "by no module"),
        ("channels first", "one after another"),
        ("more than heads", "more than the outputs of heads"),
        ("heads are summed", "heads"),
    ],
)
def test_a_layer_whose_heads_cannot_be_scaled_is_skipped_with_the_reason(way, reason):
    structure = find_structure(mixed("plain", way, "plain", way))
    assert [site.layer for site in structure.sites] == [0, 2]
    assert structure.skipped.keys() == {1, 3}
    assert all(reason in said for said in structure.skipped.values())


def test_skipped_layers_are_said_as_ranges():
    structure = find_structure(mixed("linear", "linear", "plain", "linear"))
    assert structure.by_reason() == {"no softmax over positions": "0-1, 3"}


@pytest.mark.parametrize("way", ["linear", "no module"])
def test_a_model_without_any_head_to_scale_is_refused(way):
    with pytest.raises(LongsealError, match="no heads that longseal can scale"):
        find_structure(mixed(way, way))


def test_a_model_that_cannot_run_on_tokens_is_refused_in_one_line():
    network = mixed("plain")
    network.model.layers[0].self_attn.forward = lambda **_: 1 / 0
    with pytest.raises(LongsealError, match="cannot be run on text alone: division by zero"):
        find_structure(network)


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
def test_the_attention_in_use_does_not_matter_and_is_left_as_it_was(attention):
    network = tiny.network(tiny.LLAMA)
    usual = find_structure(network)
    network.config._attn_implementation = attention
    assert find_structure(network) == usual
    assert network.config._attn_implementation == attention


def test_finding_leaves_nothing_behind():
    network = tiny.network(tiny.LLAMA)
    before = {n: p.clone() for n, p in network.state_dict().items()}
    find_structure(network)
    assert all(torch.equal(p, before[n]) for n, p in network.state_dict().items())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in network.modules())


def test_values_that_another_layer_uses_too_are_not_folded_into():
    network = tiny.network(tiny.LLAMA)
    network.model.layers[2].self_attn.v_proj = network.model.layers[0].self_attn.v_proj
    first, middle, last = find_structure(network).sites
    assert isinstance(middle.values, ValueRows)
    assert "another layer" in first.values
    assert "another layer" in last.values


class Bent(nn.Linear):
    """Looks like a product with its weight, and is more."""

    def forward(self, x):
        return super().forward(x).tanh()


@pytest.mark.parametrize("role", ["o_proj", "v_proj"])
def test_a_projection_that_does_more_than_multiply_is_not_folded_into(role):
    network = tiny.network(tiny.LLAMA)
    attention = network.model.layers[1].self_attn
    plain = getattr(attention, role)
    bent = Bent(plain.in_features, plain.out_features)
    bent.weight, bent.bias = plain.weight, plain.bias
    setattr(attention, role, bent)
    structure = find_structure(network)
    if role == "o_proj":
        assert "Bent) does more than multiply" in structure.skipped[1]
    else:
        assert "Bent) does more than multiply" in structure.sites[1].values


def test_a_weight_that_another_module_holds_is_not_folded_into():
    network = tiny.network(tiny.LLAMA)
    attention = network.model.layers[1].self_attn
    attention.k_proj.weight = attention.v_proj.weight
    assert "used in another place" in find_structure(network).sites[1].values
    network = tiny.network(tiny.LLAMA | {"head_dim": 8})
    attention = network.model.layers[1].self_attn
    attention.q_proj.weight = attention.o_proj.weight
    assert "is that of model.layers.1.self_attn.q_proj too" in find_structure(network).skipped[1]


def test_rows_are_tried_out_and_not_only_seen(monkeypatch):
    monkeypatch.setattr(structure, "values_hold", lambda *_: False)
    for site in find_structure(tiny.network(tiny.LLAMA)).sites:
        assert "tried out" in site.values


def test_layers_that_share_an_output_projection_s_weight_are_skipped():
    """Their scales could differ while attached, and could not once folded."""
    network = tiny.network(tiny.LLAMA)
    mine, other = (network.model.layers[i].self_attn.o_proj for i in (0, 2))
    other.weight = mine.weight
    structure = find_structure(network)
    assert [site.layer for site in structure.sites] == [1]
    assert "is that of model.layers.2.self_attn.o_proj too" in structure.skipped[0]
    assert "is that of model.layers.0.self_attn.o_proj too" in structure.skipped[2]


def test_only_the_tower_that_reads_text_is_scaled():
    text = tiny.LLAMA | {"vocab_size": 64}
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 8,
        "patch_size": 4,
    }
    config = AutoConfig.for_model(
        "llava", text_config=text, vision_config=vision, image_token_index=63
    )
    network = AutoModelForImageTextToText.from_config(config).eval()
    names = [site.name for site in find_structure(network).sites]
    assert names == [f"model.language_model.layers.{i}.self_attn.o_proj" for i in range(3)]


OWN = """
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class OwnConfig(PreTrainedConfig):
    model_type = "own"


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.give, self.take = nn.Linear(24, 90), nn.Linear(30, 24)

    def forward(self, x):
        q, k, v = self.give(x).unflatten(-1, (3, 5, 6)).transpose(1, 3).unbind(2)
        scores = (q @ k.mT).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, -1e9)
        return x + self.take((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, 24)
        self.stack = nn.ModuleList(Mix() for _ in range(2))
        self.say = nn.Linear(24, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids, attention_mask=None, **_):
        x = self.words(input_ids)
        for layer in self.stack:
            x = layer(x)
        return CausalLMOutput(logits=self.say(x))
"""


@pytest.fixture
def own(tmp_path):
    """A checkpoint whose code comes with it."""
    (tmp_path / "modeling_own.py").write_text(OWN, "utf-8")
    maps = {"AutoConfig": "OwnConfig", "AutoModelForCausalLM": "OwnModel"}
    settings = {
        "model_type": "own",
        "architectures": ["OwnModel"],
        "auto_map": {auto: f"modeling_own.{name}" for auto, name in maps.items()},
        "vocab_size": len(tiny.tokenizer()),
    }
    (tmp_path / "config.json").write_text(json.dumps(settings), "utf-8")
    config = AutoConfig.from_pretrained(tmp_path, trust_remote_code=True)
    network = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    random = torch.Generator().manual_seed(1)
    tensors = {
        name: 0.3 * torch.randn(p.shape, generator=random)
        for name, p in network.state_dict().items()
    }
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    tiny.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_code_that_comes_with_a_model_is_understood_when_it_is_allowed(own):
    with pytest.raises(LongsealError, match="--trust-remote-code"):
        longseal.load(own)
    model = longseal.load(own, trust_remote_code=True, device="cpu")
    assert [site.name for site in model.sites] == ["stack.0.take", "stack.1.take"]
    assert [(site.n_heads, site.width) for site in model.sites] == [(5, 6), (5, 6)]
