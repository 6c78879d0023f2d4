"""What a job would cost, before it is done: tokens, steps, memory and time."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import torch
from torch import nn

from longseal.config import EvaluateConfig, TuneConfig
from longseal.evaluation.plan import plan
from longseal.models.arguments import last_logits, vocabulary_size
from longseal.models.generation import TOGETHER
from longseal.models.load import LanguageModel
from longseal.tasks import Task
from longseal.tasks.fitting import budget
from longseal.tasks.prompt import Prompts
from longseal.tuning.choose import candidates
from longseal.tuning.memory import activation_bytes
from longseal.tuning.samples import Samples

_BACKWARD = 2.2  # a step with its backward pass, in forward passes (weights take no gradient)
_TIMED_TOKENS = 512
_TIMED_ANSWERS = 16


@dataclass(frozen=True)
class Cost:
    """One stage of a job.

    Attributes:
        tokens: tokens run through the model (a context counts once for all its questions).
        steps: optimiser steps.
        seconds: estimated from one timed forward pass and one timed decoding step.
        memory: bytes at its peak.
    """

    stage: str
    tokens: int
    steps: int
    seconds: float
    memory: int


class Estimator:
    """Estimates stages for one model.

    Seconds of a forward pass over n tokens: the timed pass, times the ratio of the operations
    2 n (weights + n layers width), the second term being attention's share.
    """

    def __init__(self, model: LanguageModel, task: Task) -> None:
        self._model, self._task = model, task
        self._weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
        embedding = model.network.get_input_embeddings()
        assert isinstance(embedding, nn.Embedding)
        parameters = sum(p.numel() for p in model.network.parameters())
        self._matrix = parameters - embedding.weight.numel()
        self._attention = sum(site.channels for site in model.sites)
        self._forward, self._decode = self._timed()

    def evaluation(self, config: EvaluateConfig, variant: str) -> Cost:
        """Cost of evaluating one variant: answers are taken to be as long as they may be."""
        speaks = Prompts(self._model, config.thinking)
        planned = plan(self._task, speaks, config, self._model.window).samples
        prompts = [sample.encoded.length for sample in planned]
        questions = sum(len(sample.encoded.questions) for sample in planned)
        room = budget(self._task, speaks)
        models = 2 if variant == "folded" else 1  # the base is still there
        batches = -(-sum(prompts) // TOGETHER)
        return Cost(
            f"evaluate {variant}",
            sum(prompts) + room * questions,
            0,
            sum(map(self._seconds, prompts)) + batches * room * self._decode,
            self._weights * models + self._run(_together(prompts)),
        )

    def tuning(self, config: TuneConfig) -> Cost:
        """Cost of tuning and of the choice on held-out samples."""
        speaks = Prompts(self._model, config.thinking)
        samples = Samples(self._task, speaks, config, self._model.window)
        step, held_out = samples.step(0), samples.held_out()
        tokens = sum(each.tokens for each in step)
        asked = 1 + len(list(candidates(config.steps)))  # at most: unchanged, and every candidate
        lengths = [each.length for each in held_out]
        room = budget(self._task, speaks)
        judging = sum(self._seconds(length) + room * self._decode for length in lengths)
        kept = activation_bytes(self._model, config.kind, step[0])
        return Cost(
            "tune",
            config.steps * tokens + asked * sum(lengths),
            config.steps,
            config.steps * _BACKWARD * sum(self._seconds(each.tokens) for each in step)
            + asked * judging,
            self._weights + max(kept, self._run(_together(lengths))),
        )

    def _seconds(self, tokens: int) -> float:
        return self._forward * self._work(tokens) / self._work(_TIMED_TOKENS)

    def _work(self, tokens: int) -> float:
        return 2.0 * tokens * (self._matrix + tokens * self._attention)

    def _run(self, tokens: int) -> int:
        """Bytes of the cache and of one layer's intermediate results over `tokens`."""
        config = self._model.network.config.get_text_config(decoder=True)
        size = self._model.network.dtype.itemsize
        cache = sum(2 * site.n_kv_heads * site.width for site in self._model.sites)
        width: int = config.hidden_size
        hidden: int = getattr(config, "intermediate_size", None) or 4 * width
        return tokens * size * (cache + 8 * width + 3 * hidden)

    @torch.no_grad()
    def _timed(self) -> tuple[float, float]:
        """Seconds of a forward pass over 512 tokens, and over a token for each of 16 answers."""
        network, device = self._model.network, self._model.device
        row = torch.arange(_TIMED_TOKENS, device=device)[None] % vocabulary_size(network)
        seconds: list[float] = []
        for _ in range(2):  # the first pass warms up
            for tokens in (row, row[:, :_TIMED_ANSWERS]):
                started = monotonic()
                options = last_logits(network, 1)
                network(input_ids=tokens, use_cache=False, **options).logits[0, -1, 0].item()
                seconds.append(monotonic() - started)
        return seconds[2], seconds[3]


def _together(prompts: list[int]) -> int:
    """Tokens that are kept at once while prompts are answered."""
    return max(max(prompts, default=0), min(sum(prompts), TOGETHER))
