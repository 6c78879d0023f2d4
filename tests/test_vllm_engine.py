"""vLLM gives what this process gives.

vLLM needs a GPU build of its own and cannot be installed here. A stand-in takes its place: the
signatures are those of the 0.33.0 wheel, and it answers as vLLM does, stop tokens included.
"""

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from longseal.errors import LongsealError
from longseal.evaluation import vllm_engine
from longseal.evaluation.vllm_engine import generate_with_vllm
from longseal.fold import fold
from longseal.models.generation import generate

SAMPLES = [
    tiny.encoded(context=50, blocks=((5, 1), (9, 1))),
    tiny.encoded(context=31, blocks=((4, 1),)),
]
BUDGETS = [[3, 8], [6]]


@dataclass(kw_only=True)
class SamplingParams:
    """Those fields of vLLM's that could be meant here, and no others."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    detokenize: bool = True
    skip_special_tokens: bool = True


class LLM:
    """Greedy by transformers."""

    def __init__(
        self,
        model: str,
        *,
        tokenizer: str | None = None,
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        seed: int = 0,
        gpu_memory_utilization: float = 0.92,
        enforce_eager: bool = False,
        max_model_len: int | None = None,
        enable_prefix_caching: bool | None = None,
        generation_config: str = "auto",
    ) -> None:
        assert enable_prefix_caching
        assert generation_config == "vllm"
        assert isinstance(model, str)
        self.network = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
        self.longest = max_model_len or self.network.config.max_position_embeddings
        self.calls = []
        made.append(self)

    def generate(
        self,
        prompts,
        sampling_params=None,
        *,
        use_tqdm=True,
        lora_request=None,
        priority=None,
        tokenization_kwargs=None,
        mm_processor_kwargs=None,
    ):
        assert len(prompts) == len(sampling_params)
        self.calls.append(len(prompts))
        return [self._answer(*asked) for asked in zip(prompts, sampling_params, strict=True)]

    def _answer(self, prompt, settings):
        assert set(prompt) == {"prompt_token_ids"}
        assert settings.temperature == 0
        row = torch.tensor([prompt["prompt_token_ids"]])
        if row.shape[1] >= self.longest:
            raise ValueError(f"The prompt (length {row.shape[1]}) is longer than {self.longest}.\n")
        ends = list(settings.stop_token_ids)
        if not settings.ignore_eos:
            ends.append(self.network.config.eos_token_id)
        said = self.network.generate(
            input_ids=row,
            attention_mask=torch.ones_like(row),
            do_sample=False,
            max_new_tokens=settings.max_tokens,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        output = SimpleNamespace(token_ids=tuple(said[0, row.shape[1] :].tolist()))
        return SimpleNamespace(outputs=[output])


made: list[LLM] = []


@pytest.fixture
def vllm(monkeypatch):
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    made.clear()
    return made


def found(given):
    return {(answer.sample, answer.question): answer.tokens for answer in given}


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_answers_are_those_of_this_process(llama, checkpoint, vllm, monkeypatch, at_once):
    monkeypatch.setattr(vllm_engine, "AT_ONCE", at_once)
    free = found(generate(llama, SAMPLES, max_new_tokens=BUDGETS, stop_tokens=[1]))
    stop = sorted({free[0, 1][4], free[1, 0][2]})
    expected = found(generate(llama, SAMPLES, max_new_tokens=BUDGETS, stop_tokens=stop))
    assert expected != free
    run = generate_with_vllm(checkpoint("llama"))
    given = list(run(SAMPLES, BUDGETS, stop))
    assert found(given) == expected
    assert all(answer.seconds > 0 for answer in given)
    assert max(vllm[0].calls) == min(at_once, 3)


def test_a_folded_model_is_answered_by_vllm_as_its_adapter_is_here(
    llama, checkpoint, vllm, tmp_path
):
    adapter = tiny.adapter_of(llama, seed=3)
    adapter.save(tmp_path / "adapter")
    fold(checkpoint("llama"), tmp_path / "adapter", tmp_path / "folded")
    with adapter.attached(llama):
        expected = found(generate(llama, SAMPLES, max_new_tokens=BUDGETS, stop_tokens=[1]))
    run = generate_with_vllm(tmp_path / "folded", longest=100)
    assert found(run(SAMPLES, BUDGETS, [1])) == expected
    assert vllm[0].longest == 100


def test_what_vllm_says_against_it_is_one_line(checkpoint, vllm, tmp_path):
    run = generate_with_vllm(checkpoint("llama"), longest=20)
    with pytest.raises(LongsealError, match=r"vLLM failed: The prompt .* is longer than 20\.$"):
        list(run(SAMPLES, BUDGETS, [1]))
    with pytest.raises(LongsealError, match="vLLM cannot load"):
        generate_with_vllm(tmp_path)


def test_without_vllm_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(LongsealError, match="vLLM is not installed: pip install vllm"):
        generate_with_vllm("any")
