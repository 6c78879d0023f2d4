"""What passes through a model take: a few are timed, the others go by their operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
_FEW, _MANY = 8, 32  # answers that grow side by side
_TRIALS = 3


class Passes:
    """Times a forward pass over 512 tokens, and those over a token for each of some answers.

    Attributes:
        held: bytes in use while nothing runs: the weights, and on a CPU the process itself.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._forward, self._few, self._many = self._timed()
        self.held = memory_now(model.device)  # now that the weights have been read
        self._weights = sum(p.numel() * p.element_size() for p in model.network.parameters())

    def answers(
        self,
        prompts: Prompts,
        asked: Sequence[tuple[Task, Sequence[EncodedSample]]],
        models: int = 1,
        *,
        learned: bool = False,
    ) -> Cost:
        """Cost of answering, of several tasks side by side.

        Args:
            models: how many are in memory at the same time.
            learned: answers are as long as the right ones, and thoughts as they may be; a model
                that was not tuned for it goes on as long as it may, here and there.
        """
        samples = [sample for _, given in asked for sample in given]
        said = [
            min(budget(task, prompts), len(answer) + 1 + prompts.thinking)
            if learned
            else budget(task, prompts)
            for task, given in asked
            for sample in given
            for answer in sample.answers
        ]
        lengths = [sample.length for sample in samples]
        batches = -(-sum(lengths) // TOGETHER)
        passes = batches * max(said, default=0)
        together = max(max(lengths, default=0), min(sum(lengths), TOGETHER))
        return Cost(
            "answers",
            sum(lengths) + sum(said),
            0,
            sum(map(self.seconds, lengths)) + passes * self._decode(len(said) / max(1, batches)),
            self.held + self._weights * (models - 1) + self._run(together),
        )

    def texts(self, lengths: Sequence[int], places: Sequence[int]) -> Cost:
        """Cost of predicting pieces of text, whose predictions are kept from now on.

        Args:
            places: of each piece, at which predictions are kept (in CPU memory, float32).
        """
        one = 4 * vocabulary_size(self._model.network)
        kept = one * sum(places) if self._model.device.type == "cpu" else 0
        run = max(self._run(max(lengths, default=0)), 2 * one * max(places, default=0))
        self.held += kept
        return Cost("text", sum(lengths), 0, sum(map(self.seconds, lengths)), self.held + run)

    def seconds(self, tokens: int) -> float:
        """Of a forward pass over a row."""
        return self._forward * operations(self._model, tokens) / operations(self._model, _TOKENS)

    def _decode(self, answers: float) -> float:
        """Seconds of a pass over a token for each of so many answers."""
        more = (self._many - self._few) / (_MANY - _FEW)
        return max(self._few / 2, self._few + more * (answers - _FEW))

    def _run(self, tokens: int) -> int:
        """Bytes of the cache and of one layer's intermediate results over `tokens`."""
        config = self._model.network.config.get_text_config(decoder=True)
        size = self._model.network.dtype.itemsize
        cache = sum(2 * site.n_kv_heads * site.width for site in self._model.sites)
        width: int = config.hidden_size
        hidden: int = getattr(config, "intermediate_size", None) or 4 * width
        return tokens * size * (cache + 8 * width + 3 * hidden)

    @torch.no_grad()
    def _timed(self) -> tuple[float, float, float]:
        network, device = self._model.network, self._model.device
        row = torch.arange(_TOKENS, device=device)[None] % vocabulary_size(network)

        def run(tokens: torch.Tensor) -> None:
            options = last_logits(network, 1)
            network(input_ids=tokens, use_cache=False, **options).logits[0, -1, 0].item()

        whole, few, many = (
            shortest(partial(run, row[:, :tokens])) for tokens in (_TOKENS, _FEW, _MANY)
        )
        return whole, few, many


def shortest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some trials: the first warms up, and others may use the machine."""
    seconds = []
    for _ in range(_TRIALS):
        started = monotonic()
        work()
        seconds.append(monotonic() - started)
    return min(seconds)
