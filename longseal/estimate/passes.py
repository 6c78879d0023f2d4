"""What passes through a model take: a few are timed, the others go by their operations."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import torch

from longseal.estimate.cost import Cost
from longseal.measure import memory_now
from longseal.models.arguments import last_logits, vocabulary_size
from longseal.models.generation import TOGETHER
from longseal.models.load import LanguageModel
from longseal.models.work import operations
from longseal.tasks import Task
from longseal.tasks.fitting import budget
from longseal.tasks.prompt import EncodedSample, Prompts

_TOKENS = 512
_ANSWERS = 16


class Passes:
    """Times a forward pass over 512 tokens, and one over a token for each of 16 answers.

    Attributes:
        held: bytes in use while nothing runs: the weights, and on a CPU the process itself.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._forward, self._decode = self._timed()
        self.held = memory_now(model.device)  # now that the weights have been read
        self._weights = sum(p.numel() * p.element_size() for p in model.network.parameters())

    def answers(
        self, prompts: Prompts, task: Task, samples: Sequence[EncodedSample], models: int = 1
    ) -> Cost:
        """Cost of answering: answers are taken to be as long as the right ones, thoughts as may be.

        Args:
            models: how many are in memory at the same time.
        """
        said = max((len(a) for sample in samples for a in sample.answers), default=0)
        room = min(said, budget(task, prompts)) + prompts.thinking
        lengths = [sample.length for sample in samples]
        questions = sum(len(sample.questions) for sample in samples)
        batches = -(-sum(lengths) // TOGETHER)
        together = max(max(lengths, default=0), min(sum(lengths), TOGETHER))
        return Cost(
            task.name,
            sum(lengths) + room * questions,
            0,
            sum(map(self.seconds, lengths)) + batches * room * self._decode,
            self.held + self._weights * (models - 1) + self._run(together),
        )

    def texts(self, lengths: Sequence[int]) -> Cost:
        """Cost of running over texts."""
        longest = max(lengths, default=0)
        seconds = sum(map(self.seconds, lengths))
        return Cost("text", sum(lengths), 0, seconds, self.held + self._run(longest))

    def seconds(self, tokens: int) -> float:
        """Of a forward pass over a row."""
        return self._forward * operations(self._model, tokens) / operations(self._model, _TOKENS)

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
        network, device = self._model.network, self._model.device
        row = torch.arange(_TOKENS, device=device)[None] % vocabulary_size(network)
        seconds: list[float] = []
        for _ in range(2):  # the first pass warms up
            for tokens in (row, row[:, :_ANSWERS]):
                started = monotonic()
                options = last_logits(network, 1)
                network(input_ids=tokens, use_cache=False, **options).logits[0, -1, 0].item()
                seconds.append(monotonic() - started)
        return seconds[2], seconds[3]
