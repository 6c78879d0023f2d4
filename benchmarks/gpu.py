"""What a training step of a 7B model costs on one GPU, at 31K tokens, in bfloat16 and in 4 bits.

The model has the shape of a Llama of 7B and random weights, made on the device: nothing is
downloaded and no tokenizer is needed. The device's own rate is measured first, on a product of two
large matrices. Each way to save memory is tried, and the one that longseal would choose is named.
The useful work of a step is counted (each product of its forward and its backward pass once, none
of what is run again), so the fraction of the device's rate is what counts for the user.

    python benchmarks/gpu.py [--length 31744] [--questions 8] [--steps 2] [--quick]
"""

from __future__ import annotations

import gc
import json
from importlib.util import find_spec
from time import monotonic
from typing import Any, cast

import torch
from cyclopts import run
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

from longseal.config import Quantization
from longseal.measure import machine, versions
from longseal.models.context.rope import window
from longseal.models.load import LanguageModel, pick_device
from longseal.models.saving import Way, saving, ways
from longseal.models.structure import find_structure
from longseal.tasks import Question, Sample
from longseal.tasks.loss import loss
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.learned import LearnedScales
from longseal.tuning.memory import fitting_plan

_SEVEN_B = LlamaConfig(
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    vocab_size=32000,
    max_position_embeddings=32768,
)
_SMALL = LlamaConfig(
    hidden_size=128,
    intermediate_size=320,
    num_hidden_layers=3,
    num_attention_heads=4,
    vocab_size=1000,
    max_position_embeddings=4096,
)
_QUESTION, _ANSWER = 40, 12  # tokens
Found = dict[str, Any]


def main(
    *,
    length: int = 31 * 1024,
    questions: int = 8,
    steps: int = 2,
    device: str = "auto",
    quick: bool = False,
) -> None:
    """Print a JSON line for each base and way, and one with all of it."""
    shape = _SMALL if quick else _SEVEN_B
    if quick:
        length, questions, steps = 192, 2, 1
    place = pick_device(device)
    rate = matrix_rate(place, 256 if quick else 8192)
    print(json.dumps({"machine": machine(place), "versions": versions()}))
    print(json.dumps({"matrix_tflops": rate / 1e12}), flush=True)
    found: Found = {"length": length, "questions": questions, "matrix_tflops": rate / 1e12}
    for name, bits in {"bfloat16": None, "4bit": "4bit"}.items():
        if bits and find_spec("bitsandbytes") is None:
            print("bitsandbytes is not installed: no base in 4 bits")
            continue
        model = language_model(shape, place, cast("Quantization | None", bits))
        found[name] = of_base(model, row(shape, length, questions), steps, rate, name)
        del model
        forget(place)
    print(json.dumps(found))


def of_base(
    model: LanguageModel, encoded: EncodedSample, steps: int, rate: float, name: str
) -> Found:
    """Every way's step on one base."""
    learned = LearnedScales("channel", model)
    with learned.attached(model.network):
        chosen = fitting_plan(model, learned, encoded)
        print(f"{name}: {chosen.about}", flush=True)
        found: Found = {"chosen": chosen.way, "foretold": chosen.need}
        for way in ways(model.network):
            found[way] = of_way(model, encoded, way, steps, rate)
            print(json.dumps({"base": name, "way": way, **(found[way] or {})}), flush=True)
    return found


def of_way(
    model: LanguageModel, encoded: EncodedSample, way: Way, steps: int, rate: float
) -> Found | None:
    """Seconds, memory and speed of a step; None where memory does not suffice."""
    forget(model.device)
    on_gpu = model.device.type == "cuda"
    try:
        with saving(model.network, way):
            seconds = min(timed(model, encoded) for _ in range(1 + steps))
    except torch.OutOfMemoryError:
        return None
    useful = useful_operations(model.network, encoded.tokens)
    return {
        "seconds": round(seconds, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
        "tokens_a_second": round(encoded.tokens / seconds),
        "of_matrix_rate": round(useful / seconds / rate, 3),
    }


def timed(model: LanguageModel, encoded: EncodedSample) -> float:
    """Seconds of one step."""
    began = monotonic()
    loss(model, encoded, backward=True)  # gives a number: nothing is left to wait for but gradients
    wait(model.device)
    return monotonic() - began


def useful_operations(network: PreTrainedModel, tokens: int) -> float:
    """Floating-point operations of a step: those of its products, what is run again left out.

    Frozen weights take one product forwards and one backwards. Attention takes two forwards and
    five in flash attention's backward pass, each over half of all pairs.
    """
    config = network.config
    hidden, layers = config.hidden_size, config.num_hidden_layers
    weights = layers * hidden * (4 * hidden + 3 * config.intermediate_size)
    pairs = tokens * tokens / 2
    return 2 * 2 * weights * tokens + layers * (2 + 5) * 2 * pairs * hidden


def matrix_rate(device: torch.device, size: int) -> float:
    """Operations a second of a product of two bfloat16 matrices, at its best.

    The second one as it lies and transposed, as layers use it backwards and forwards: a CPU may be
    several times faster at one of them.
    """
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for other in (right, right.T):
        for _ in range(4):
            began = monotonic()
            for _ in range(8):
                left @ other
            wait(device)
            best = min(best, (monotonic() - began) / 8)
    return 2 * size**3 / best


def language_model(
    shape: LlamaConfig, device: torch.device, bits: Quantization | None
) -> LanguageModel:
    """A model of random bfloat16 weights, made on the device; its matrices in 4 bits if wished."""
    with device:
        network = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    network.eval()
    network.requires_grad_(False)
    if bits is not None:
        for layer in network.model.layers:
            pack(layer, device)
        forget(device)
    tokenizer = cast(PreTrainedTokenizerBase, None)  # nothing is written
    return LanguageModel(
        "random", network, tokenizer, find_structure(network), window(shape), quantize=bits
    )


def pack(module: nn.Module, device: torch.device) -> None:
    """Put bitsandbytes' 4-bit layers in the place of a module's linear ones."""
    import bitsandbytes as bnb

    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            pack(child, device)
            continue
        packed = bnb.nn.Linear4bit(
            child.in_features,
            child.out_features,
            bias=False,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        packed.weight = bnb.nn.Params4bit(
            child.weight.data.cpu(), requires_grad=False, quant_type="nf4"
        ).to(device)
        setattr(module, name, packed)


def row(shape: LlamaConfig, length: int, questions: int) -> EncodedSample:
    """Random tokens: a prompt of that length for each question."""
    random = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, shape.vocab_size, (count,), generator=random).tolist())

    return EncodedSample(
        context=tokens(length - _QUESTION - _ANSWER),
        questions=tuple(tokens(_QUESTION) for _ in range(questions)),
        answers=tuple(tokens(_ANSWER) for _ in range(questions)),
        source=Sample("", tuple(Question("", "", ()) for _ in range(questions))),
    )


def forget(device: torch.device) -> None:
    """Give back what is not used, and count the peak from here on."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    run(main)
