"""Self-Extend against the paper's formula written out, and against what others get wrong."""

from __future__ import annotations

from functools import cache

import pytest
import tiny
import torch
import zoo
from dense_reference import Dense, dense_logits
from torch import Tensor
from transformers import PreTrainedModel
from zoo_overrides import OVERRIDES

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.models.context.self_extend import self_extend
from longseal.scales.hooks import scaling
from longseal.tuning.memory.live import Live

#: The group does not divide the neighbours.
GROUP, NEAR = 3, 16
LENGTH = 71

QWEN2 = tiny.LLAMA | {"model_type": "qwen2", "head_dim": 12, "sliding_window": None}
QWEN3 = tiny.LLAMA | {"model_type": "qwen3"}
WIDE_BASE = tiny.LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 20_000.0,
        "partial_rotary_factor": 0.25,
    },
}
GLM = OVERRIDES.get("glm", {}) | {
    "model_type": "glm",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "pad_token_id": 1,
}
FAMILIES = {
    "llama": (tiny.LLAMA, Dense(GROUP, NEAR, 10_000.0, 12)),
    "llama, base 500,000": (WIDE_BASE, Dense(GROUP, NEAR, 500_000.0, 12)),
    "qwen2": (QWEN2, Dense(GROUP, NEAR, 10_000.0, 12)),
    "qwen3": (QWEN3, Dense(GROUP, NEAR, 10_000.0, 12)),
    "gpt_neox, a quarter of a head": (NEOX, Dense(GROUP, NEAR, 20_000.0, 4)),
    "glm, half a head, adjacent": (GLM, Dense(GROUP, NEAR, 10_000.0, 6, adjacent=True)),
}


@cache
def pair(
    family: str = "llama", attention: str = "sdpa", dtype: torch.dtype = torch.float64
) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A model as it is, and the same extended."""
    made = [tiny.network(FAMILIES[family][0]).to(dtype) for _ in range(2)]
    for network in made:
        network.set_attn_implementation(attention)
        network.requires_grad_(False)
    self_extend(made[1], Extension.parse(f"self-extend:{GROUP}:{NEAR}"), 4096)
    return made[0], made[1]


def tokens(count: int, rows: int = 1) -> Tensor:
    return torch.tensor([tiny.tokens(count, seed=row) for row in range(rows)])


def close(found: Tensor, expected: Tensor) -> None:
    """Up to the float32 that transformers computes cosines and sines in."""
    torch.testing.assert_close(found, expected, atol=2e-5 * float(expected.std()), rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_logits_are_those_of_the_formula_written_out(family: str, attention: str) -> None:
    dense = FAMILIES[family][1]
    base, extended = pair(family, attention)
    row = tokens(LENGTH)
    expected = dense_logits(base, row, dense)
    close(extended(input_ids=row).logits, expected)
    assert (base(input_ids=row).logits - expected).abs().max() > 0.01 * expected.std()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_no_longer_than_the_neighbours_has_the_bits_of_the_base(
    attention: str, dtype: torch.dtype
) -> None:
    base, extended = pair(attention=attention, dtype=dtype)
    rows = tokens(NEAR, 2)
    padding = torch.ones_like(rows)
    padding[0, :5] = 0
    for mask in (None, padding):
        a, b = (net(input_ids=rows, attention_mask=mask).logits for net in (base, extended))
        assert torch.equal(a[1], b[1])
        assert torch.equal(a[0, 5:], b[0, 5:])


def test_the_extended_model_goes_on_by_its_own_formula_from_the_first_decoded_token() -> None:
    base, extended = pair()
    row = tokens(LENGTH)
    expected = dense_logits(base, row, FAMILIES["llama"][1])
    for prefill in (1, NEAR - 1, NEAR, NEAR + 1, 40):
        found = extended(input_ids=row[:, :prefill], use_cache=True)
        steps, cache = [found.logits], found.cache
        for place in range(prefill, LENGTH):
            found = extended(input_ids=row[:, place : place + 1], cache=cache, use_cache=True)
            steps.append(found.logits)
        close(torch.cat(steps, dim=1), expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_shifts_no_position(side: str) -> None:
    base, extended = pair()
    rows, pads = tokens(LENGTH, 3), (0, 7, 40)
    mask = torch.ones_like(rows)
    for row, count in enumerate(pads):
        mask[row, slice(0, count) if side == "left" else slice(LENGTH - count, LENGTH)] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    found = extended(input_ids=rows, attention_mask=mask, position_ids=positions).logits
    assert found.isfinite().all()
    for row in range(3):
        alone = rows[row][mask[row].bool()][None]
        close(found[row][mask[row].bool()], dense_logits(base, alone, FAMILIES["llama"][1])[0])


def test_generate_with_padding_says_what_each_prompt_is_answered_with_alone() -> None:
    base, extended = pair()
    rows, mask = tokens(LENGTH, 2), torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, :30] = 0
    said = extended.generate(
        input_ids=rows, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    for row in range(2):
        grown = rows[row][mask[row].bool()][None]
        for _ in range(6):
            grown = torch.cat(
                [grown, dense_logits(base, grown, FAMILIES["llama"][1])[:, -1:].argmax(-1)], dim=1
            )
        assert said[row, -6:].tolist() == grown[0, -6:].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_for_the_scales_is_that_of_the_formula_written_out(family: str) -> None:
    dense = FAMILIES[family][1]
    networks, row = pair(family), tokens(LENGTH)
    found = []
    for network, run in zip(
        networks,
        (lambda n: dense_logits(n, row, dense), lambda n: n(input_ids=row).logits),
        strict=True,
    ):
        names = list(tiny.projections(network)) or [
            n for n, _ in network.named_modules() if n.endswith("attention.dense")
        ]
        widths = {n: network.get_submodule(n).in_features for n in names}
        scales = {n: torch.linspace(0.7, 1.3, w).requires_grad_() for n, w in widths.items()}
        with scaling(network, {n: lambda _, s=s: s for n, s in scales.items()}):
            loss = run(network)[0, :-1].log_softmax(-1)[range(LENGTH - 1), row[0, 1:]].mean()
            loss.backward()
        found.append(torch.cat([scale.grad for scale in scales.values()]))
    torch.testing.assert_close(found[1], found[0], atol=1e-4 * float(found[0].std()), rtol=0)


@pytest.mark.parametrize("learn", [False, True])
def test_memory_grows_with_the_row_and_not_with_its_square(learn: bool) -> None:
    network = tiny.network(tiny.LLAMA).requires_grad_(False)
    self_extend(network, Extension.parse("self-extend:4:64"), 4096)
    peaks = []
    for length in (1024, 4096):
        live = Live(network.device, [*network.parameters(), *network.buffers()])
        scale = torch.ones(72, requires_grad=learn)
        name = next(iter(tiny.projections(network)))
        factors = {name: lambda _, scale=scale: scale}
        with torch.set_grad_enabled(learn), scaling(network, factors), live:
            out = network.model(input_ids=tokens(length), use_cache=False).last_hidden_state
            if learn:
                out.sum().backward()
        del out
        peaks.append(live.peak)
    assert peaks[1] < 4.6 * peaks[0]


def test_positions_are_whole_numbers_however_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _, extended = pair()
    asked = []
    rotary = extended.model.rotary_emb
    plain = type(rotary).forward

    def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(position_ids)
        return plain(rotary, x, position_ids)

    monkeypatch.setattr(rotary, "forward", forward)
    far = 2**20 + 1  # float32 tells no quarter of it from the next
    row = torch.arange(LENGTH)[None] + far
    extended(input_ids=tokens(LENGTH), position_ids=row)
    assert all(not each.is_floating_point() for each in asked)
    own = torch.arange(asked[1].shape[1])
    assert asked[1].shape[1] >= far + LENGTH
    assert any(torch.equal(each[0], own // GROUP) for each in asked)
    assert any(torch.equal(each[0], own // GROUP + NEAR - NEAR // GROUP) for each in asked)


def test_tokens_that_do_not_follow_one_another_are_refused() -> None:
    _, extended = pair()
    places = torch.arange(LENGTH)[None].clone()
    places[:, 40:] += 3
    with pytest.raises(LongsealError, match="follow one another"):
        extended(
            input_ids=tokens(LENGTH), position_ids=places, attention_mask=torch.ones(1, LENGTH)
        )


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("mistral", "MistralForCausalLM .* sliding window"),
        ("gemma3_text", "Gemma3ForCausalLM .* sliding window"),
        ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM .* how model.layers.0.self_attn turns"),
        ("falcon", "FalconForCausalLM .* attention interface"),
        ("gpt2", "GPT2LMHeadModel .* cannot be seen"),
    ],
)
def test_what_cannot_be_extended_so_is_refused_by_name(family: str, reason: str) -> None:
    network = zoo.build(family)
    before = network.config._attn_implementation
    with pytest.raises(LongsealError, match=reason):
        self_extend(network, Extension.parse("self-extend:3:5"), 4096)
    assert network.config._attn_implementation == before
