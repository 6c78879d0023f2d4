"""Extensions that are said in a config: the angles, the logits, what is kept and refused."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
import tiny
import torch
from torch import Tensor
from transformers.utils import logging

from longseal.config import Extension, LoadConfig
from longseal.errors import LongsealError
from longseal.evaluation.continuations import Continued, log_likelihoods
from longseal.models.context.rotary import find_rotary
from longseal.models.generation import generate
from longseal.models.load import LanguageModel, load
from longseal.models.row_length import forget_lengths
from longseal.tasks.prompt import EncodedSample

WINDOW = 64
SHORT = tiny.LLAMA | {"max_position_embeddings": WINDOW}
WIDE_BASE = SHORT | {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": WINDOW,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 20_000.0,
        "partial_rotary_factor": 0.5,
    },
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": WINDOW,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
QWEN3 = SHORT | {"model_type": "qwen3"}
MISTRAL = tiny.MISTRAL | {"max_position_embeddings": WINDOW}
LLAMA3 = SHORT | {
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
}
YARN = SHORT | {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 24.0,
    }
}
LONGROPE = SHORT | {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 6,
        "long_factor": [4.0] * 6,
        "original_max_position_embeddings": 16,
    }
}
#: A config, its base and the channels of a head that are turned.
FAMILIES = {
    "llama": (SHORT, 10_000.0, 12),
    "llama, base 500,000": (WIDE_BASE, 500_000.0, 12),
    "qwen3": (QWEN3, 10_000.0, 12),
    "mistral, sliding": (MISTRAL, 10_000.0, 12),
    "gpt_neox, half a head": (NEOX, 20_000.0, 8),
    "gemma3, full layers": (GEMMA3, 1_000_000.0, 12),
}


def extended(
    folder: Path, config: dict[str, object], extend: str | None, **more: bool
) -> LanguageModel:
    if not (folder / "config.json").exists():
        tiny.save(folder, config)
    return load(folder, device="cpu", extend=extend, **more)


def buffers(model: LanguageModel) -> Tensor:
    """The inverse frequencies that the full layers turn by, as the network itself holds them."""
    names = ("full_attention_inv_freq", "inv_freq")
    held = {n.rpartition(".")[2]: b for n, b in model.network.named_buffers()}
    return next(held[name] for name in names if name in held).double()


def frequencies(theta: float, d: int) -> Tensor:
    return theta ** -(torch.arange(0, d, 2).double() / d)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_static_ntk_is_the_closed_formula_on_the_models_own_base(
    family: str, tmp_path: Path
) -> None:
    config, theta, d = FAMILIES[family]
    model = extended(tmp_path, config, "ntk:4")
    same(buffers(model), frequencies(theta * 4 ** (d / (d - 2)), d))
    assert buffers(model)[-1] == pytest.approx(frequencies(theta, d)[-1] / 4)
    assert (model.window, model.network.config.max_position_embeddings) == (4 * WINDOW,) * 2


@pytest.mark.parametrize("family", FAMILIES)
def test_linear_divides_every_frequency(family: str, tmp_path: Path) -> None:
    config, theta, d = FAMILIES[family]
    same(buffers(extended(tmp_path, config, "linear:2.5")), frequencies(theta, d) / 2.5)


def test_yarn_is_its_papers_formula(tmp_path: Path) -> None:
    model = extended(tmp_path, SHORT, "yarn:4")
    plain, d = frequencies(10_000.0, 12), 12

    def channel(turns: float) -> float:
        return d * log(WINDOW / (turns * 2 * torch.pi)) / (2 * log(10_000.0))

    low, high = max(int(channel(32) // 1), 0), min(-int(-channel(1) // 1), d - 1)
    ramp = ((torch.arange(6) - low) / (high - low)).clamp(0, 1).double()
    same(buffers(model), plain / 4 * ramp + plain * (1 - ramp))
    cos, sin = find_rotary(model.network)[0].tables(torch.arange(3))
    radius = (cos.square() + sin.square()).sqrt()
    same(radius, torch.full_like(radius, 0.1 * log(4) + 1))


def test_dynamic_is_the_base_within_the_window_and_ntk_of_the_length_beyond(
    tmp_path: Path,
) -> None:
    base, model = (extended(tmp_path, SHORT, e) for e in (None, "dynamic:4"))
    row = torch.tensor([tiny.tokens(3 * WINDOW)])
    short = row[:, :WINDOW]
    assert torch.equal(model.network(short).logits, base.network(short).logits)
    model.network(row)
    stretched = 4 * 3 - (4 - 1)
    same(buffers(model), frequencies(10_000.0 * stretched ** (12 / 10), 12))


@pytest.mark.parametrize("method", ["ntk:4", "linear:4", "yarn:4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_logits_are_those_of_a_model_that_turns_by_these_angles(
    family: str, method: str, tmp_path: Path
) -> None:
    config = FAMILIES[family][0]
    base, model = (extended(tmp_path, config, e) for e in (None, method))
    row = torch.tensor([tiny.tokens(40)])
    found, plain = model.network(row).logits, base.network(row).logits
    assert (found - plain).abs().max() > 0.01 * plain.std()
    scaling = {
        name: getattr(module, name)
        for module in model.network.modules()
        for name in ("attention_scaling", "full_attention_attention_scaling")
        if isinstance(getattr(module, name, None), float)
    }
    for module in base.network.modules():  # the base made to turn so, by hand
        for name in ("full_attention_inv_freq", "inv_freq"):
            if isinstance(getattr(module, name, None), Tensor):
                getattr(module, name).copy_(buffers(model))
                for scale, value in scaling.items():
                    setattr(module, scale, value)
                break
    torch.testing.assert_close(base.network(row).logits, found, atol=1e-5, rtol=1e-5)


def test_local_layers_keep_their_own_base(tmp_path: Path) -> None:
    for method in ("ntk:4", "linear:4", "yarn:4", "dynamic:4"):
        model = extended(tmp_path, GEMMA3, method)
        local = model.network.model.rotary_emb.sliding_attention_inv_freq.double()
        same(local, frequencies(10_000.0, 12))


@pytest.mark.parametrize("config", [LLAMA3, YARN, LONGROPE])
@pytest.mark.parametrize("method", ["ntk:4", "linear:4", "dynamic:4", "yarn:2"])
def test_positions_that_are_scaled_already_keep_their_kind_or_it_is_refused(
    config: dict[str, object], method: str, tmp_path: Path
) -> None:
    shipped = config["rope_parameters"]
    if method.startswith(shipped["rope_type"]):
        parameters = extended(tmp_path, config, method).network.config.rope_parameters
        assert parameters == shipped | {"factor": 2 * shipped["factor"]}
        return
    forced = "$" if method == "dynamic:4" else ".*--force"
    with pytest.raises(
        LongsealError, match=f"already \\({shipped['rope_type']}\\).*made for that{forced}"
    ):
        extended(tmp_path, config, method)


def test_by_force_the_base_is_kept(tmp_path: Path) -> None:
    for method in ("linear:4", "yarn:4"):
        model = extended(tmp_path, LLAMA3, method, force=True)
        parameters = model.network.config.rope_parameters
        assert (parameters["rope_type"], parameters["rope_theta"]) == (method[:-2], 500_000.0)
    forced = extended(tmp_path, LLAMA3, "ntk:4", force=True).network.config.rope_parameters
    assert forced == LLAMA3["rope_parameters"] | {"rope_theta": pytest.approx(500_000 * 4**1.2)}


def test_what_cannot_be_forced_does_not_ask_for_force(tmp_path: Path) -> None:
    for force in (False, True):
        for method in ("self-extend:2:8", "dynamic:4"):
            with pytest.raises(LongsealError, match=r"already \(longrope\).*is not made for that$"):
                extended(tmp_path, LONGROPE, method, force=force)


@pytest.mark.parametrize("method", ["ntk:4", "linear:4", "dynamic:4", "yarn:4", "self-extend:2:8"])
def test_a_model_without_rotary_positions_is_refused_by_name(method: str, tmp_path: Path) -> None:
    with pytest.raises(LongsealError, match="gpt2 has no rotary positions"):
        extended(tmp_path, tiny.GPT2, method)


def test_what_would_not_take_effect_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save(tmp_path, SHORT)
    monkeypatch.setattr("longseal.models.load.AutoModelForCausalLM", _Deaf)
    with pytest.raises(LongsealError, match="would not take effect in LlamaForCausalLM"):
        load(tmp_path, device="cpu", extend="ntk:4")


class _Deaf:
    """Builds models by their own configs, whatever it is given."""

    @staticmethod
    def from_pretrained(place: str, config: object, **options: object) -> object:
        return tiny.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)


@pytest.mark.parametrize("prompt", [WINDOW - 4, WINDOW, WINDOW + 9])
def test_no_kept_key_is_turned_by_another_base_than_the_query(tmp_path: Path, prompt: int) -> None:
    model, count = extended(tmp_path, SHORT, "dynamic:4"), 8
    encoded = tiny.encoded(prompt - 5, [(5, 1)])
    said = next(generate(model, [encoded], max_new_tokens=count, stop_tokens=[2])).tokens
    if prompt > WINDOW:  # the base of the length that it may grow to, from the first token on
        stretched = 4 * (prompt + count) / WINDOW - 3
        once = load(tmp_path, device="cpu", extend=f"ntk:{stretched}")
        assert said == whole_passes(once, encoded, count)
    else:  # each pass by the base of its length, and whole
        assert said == whole_passes(model, encoded, count)


def test_an_answer_beyond_the_window_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = extended(tmp_path, SHORT, "dynamic:4")
    logging.warning_once.cache_clear()
    logging.get_logger().addHandler(caplog.handler)
    try:
        list(generate(model, [tiny.encoded(WINDOW)], max_new_tokens=3, stop_tokens=[2]))
    finally:
        logging.get_logger().removeHandler(caplog.handler)
    assert not caplog.records


def test_what_is_asked_beside_it_does_not_change_how_likely_a_continuation_is(
    tmp_path: Path,
) -> None:
    model, context = extended(tmp_path, SHORT, "dynamic:4"), tiny.tokens(WINDOW)
    asked = [Continued(tuple(tiny.tokens(count, seed=count)), 2) for count in (60, 9)]
    alone = [log_likelihoods(model, context, [each])[0] for each in asked]
    assert log_likelihoods(model, context, asked) == pytest.approx(alone, abs=1e-4)


def whole_passes(model: LanguageModel, encoded: EncodedSample, count: int) -> list[int]:
    said: list[int] = []
    for _ in range(count):
        row = torch.tensor([[*encoded.prompt(0), *said]])
        forget_lengths(model.network)
        with torch.no_grad():
            said.append(int(model.network(row, use_cache=False).logits[0, -1].argmax()))
    return said[: said.index(2)] if 2 in said else said


def test_an_extension_is_read_strictly_and_written_as_it_was_read() -> None:
    for text in ("ntk:4", "linear:2.5", "dynamic:4", "yarn:1.25", "self-extend:8:1024"):
        assert str(Extension.parse(text)) == text == LoadConfig(extend=text).extend
    wrong = ("ntk", "ntk:1", "ntk:-2", "yarn:x", "self-extend:8", "self-extend:1:9", "rope:4")
    for text in (*wrong, "ntk:100000000000000000", "ntk:1.00000000000000001"):
        with pytest.raises(ValueError, match="is no extension"):
            LoadConfig(extend=text)


def test_self_extend_reaches_what_its_paper_says_where_the_group_divides() -> None:
    assert Extension.parse("self-extend:8:1024").window(4096) == (4096 - 1024) * 8 + 1024
    group, near, own = 6, 1024, 4096
    window = Extension.parse("self-extend:6:1024").window(own)
    positions = [p // group + near - near // group for p in (window - 1, window)]
    assert positions == [own - 1, own]
