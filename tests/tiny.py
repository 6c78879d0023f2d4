"""Tiny models whose weights would show a wrong program: large, random, nothing equal."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from longseal.cli import main
from longseal.models.load import LanguageModel
from longseal.scales import Adapter, Scales
from longseal.tasks import Family, Question, Sample, Task, Wanted
from longseal.tasks.lines import Lines
from longseal.tasks.prompt import EncodedSample, Prompts

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)

#: head_dim x n_heads != hidden size where the family allows it; grouped heads where it knows them.
LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "attention_bias": True,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
UNTIED = LLAMA | {"tie_word_embeddings": False}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 48,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 4096,
}
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "sliding_window": 96,
    "max_position_embeddings": 4096,
}


def tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a byte, with BOS, EOS and turn marks."""
    special = ["<|bos|>", "<|eos|>", "<|turn|>", "<|end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*special, *letters])}
    raw = Tokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(special)
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        pad_token="<|eos|>",
        additional_special_tokens=["<|turn|>", "<|end|>"],
    )
    made.chat_template = template
    return made


def prompts(template: str | None = TEMPLATE) -> Prompts:
    """Prompts of the tokenizer alone, without a model."""
    spoken = tokenizer(template)
    return Prompts(
        SimpleNamespace(tokenizer=spoken, eos_token_ids=frozenset({spoken.eos_token_id}))
    )


def network(config: dict[str, object], seed: int = 0) -> PreTrainedModel:
    """A random model: weights of std 0.15 and more, biases drawn at random, norms all different."""
    words = len(tokenizer())
    made = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**config, vocab_size=words, bos_token_id=0, eos_token_id=1)
    )
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            noise = torch.randn(parameter.shape, generator=random)
            norm = name.endswith("weight") and ("norm" in name or ".ln_" in name)
            parameter.copy_(1 + 0.3 * noise if norm else 0.2 * noise)
    made.eval()
    return made


def save(
    folder: Path,
    config: dict[str, object] = LLAMA,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    shard: str = "50GB",
    template: str | None = TEMPLATE,
) -> Path:
    """Write a tiny model and its tokenizer as a checkpoint."""
    network(config, seed).to(dtype).save_pretrained(folder, max_shard_size=shard)
    tokenizer(template).save_pretrained(folder)
    return folder


def projections(network: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """The output projections by name, known beforehand for these families."""
    ends = (".o_proj", ".attn.c_proj")
    return {name: module for name, module in network.named_modules() if name.endswith(ends)}


def random_scales(model: LanguageModel, kind: str, spread: float = 0.3, seed: int = 5) -> Scales:
    """Scales that are all different."""
    random = torch.Generator().manual_seed(seed)
    zeros = Scales.zeros(kind, model.sites)
    deltas = {n: spread * torch.randn(d.shape, generator=random) for n, d in zeros.deltas.items()}
    return Scales(kind, zeros.sites, deltas)


def factors(scales: Scales, name: str, width: int) -> torch.Tensor:
    """What the input channels of a projection are multiplied by, worked out again."""
    delta = scales.deltas[name]
    return 1 + (delta if delta.shape[1] == width else delta.repeat(1, width)).flatten()


def tokens(count: int, seed: int = 0) -> list[int]:
    """Random tokens, special ones left out."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(4, len(tokenizer()), (count,), generator=random).tolist()


def encoded(
    context: int = 40, blocks: Sequence[tuple[int, int]] = ((5, 4), (9, 6), (3, 1))
) -> EncodedSample:
    """A context with questions and answers of the given numbers of random tokens."""
    return EncodedSample(
        context=tuple(tokens(context)),
        questions=tuple(tuple(tokens(q, 10 + i)) for i, (q, _) in enumerate(blocks)),
        answers=tuple(tuple(tokens(a, 20 + i)) for i, (_, a) in enumerate(blocks)),
        source=Sample("", tuple(Question("", "", (str(i),)) for i in range(len(blocks)))),
    )


class ShortLines(Lines):
    """LongEval's lines with few new tokens: a random model's babble need not be long."""

    max_new_tokens = 6


class Chance(ShortLines):
    """Calls one answer in three right, by its checksum: a random model gets some, and can gain."""

    def score(self, prediction: str, question: Question) -> dict[str, float]:
        right = chance(prediction, question)
        return {"last": right, "first": right, "contains": right}


class Pairs(Task):
    """Numbers by number, as short as can be: 64 tokens hold some; one answer in three is right."""

    about = "the number that stands beside a number"
    unit = "pairs"
    max_new_tokens = 3
    metric = "right"
    smallest = 2

    def __init__(self, name: str = "pairs") -> None:
        self.name = name

    def sample(self, wanted: Wanted) -> Sample:
        random = wanted.random()
        keys = random.sample(range(100, 1000), wanted.size)
        values = [str(random.randrange(10, 100)) for _ in keys]
        asked = random.sample(range(wanted.size), min(wanted.questions, wanted.size))
        return Sample(
            "".join(f"{key} {value}\n" for key, value in zip(keys, values, strict=True)),
            tuple(Question(f"{keys[i]}?", values[i], (values[i],)) for i in asked),
        )

    def score(self, prediction: str, question: Question) -> dict[str, float]:
        return {"right": chance(prediction, question)}


def chance(prediction: str, question: Question) -> float:
    """1 for one prediction in three, by its checksum."""
    said = prediction + question.expected[0]
    return float(sha256(said.encode()).digest()[0] % 3 == 0)


def family(task: type[Lines]) -> Family:
    """`lines` asked by another task."""
    return Family("lines", task.about, lambda variant, material: task())


def adapter_of(model: LanguageModel, seed: int, kind: str = "channel", **record: object) -> Adapter:
    """An adapter of random scales."""
    return Adapter.of(model, random_scales(model, kind, seed=seed), record)


def outcome(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Of a call of longseal: exit code, stdout and stderr, Python's descriptors and all."""
    capfd.readouterr()
    code = 0
    try:
        main(list(arguments))
    except SystemExit as ended:
        code = ended.code
    return code, *capfd.readouterr()
