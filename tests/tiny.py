"""Tiny models whose weights would show a wrong program: large, random, nothing equal."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

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
            parameter.copy_(1 + 0.3 * noise if "norm" in name and "weight" in name else 0.2 * noise)
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
