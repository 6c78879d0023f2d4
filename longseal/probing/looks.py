"""Where each head looks: how far back, how much at the first tokens, and whether it copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor, nn

from longseal.errors import LongsealError
from longseal.models.arguments import last_logits
from longseal.models.load import LanguageModel
from longseal.models.row_length import forget_lengths
from longseal.models.sites import seats
from longseal.models.watched_attention import watched_attention
from longseal.probing.heads import HeadName

#: Tokens at the start that heads with nothing to do attend to (attention sinks).
FIRST = 4


@dataclass(frozen=True)
class Look:
    """What a head attends to, a mean over the places of one prompt with its answer.

    Attributes:
        distance: how many tokens back, the attention's mean.
        first: share of the attention that falls on the first 4 tokens.
        copies: retrieval score (Wu et al., 2024, https://arxiv.org/abs/2404.15574): of the answer's
            tokens that stand in the evidence, the share at which the head attends most to that
            token there; None where the answer has none.
    """

    head: HeadName
    distance: float
    first: float
    copies: float | None


@torch.no_grad()
def looks(
    model: LanguageModel,
    prompt: Sequence[int],
    answer: Sequence[int],
    evidence: tuple[int, int] | None,
) -> list[Look]:
    """Watch every head while the model reads a prompt and its right answer.

    Args:
        evidence: first and last place (exclusive) of the prompt's tokens that the answer is in.

    Raises:
        LongsealError: the model does not take transformers' attention interface.
    """
    network, sites = model.network, model.sites
    tokens = torch.tensor([[*prompt, *answer]], device=model.device)
    owners = {_attention_of(model, site.name): site for site in sites}
    sums = {site.name: torch.zeros(2, site.n_heads) for site in sites}
    copied = {site.name: torch.zeros(site.n_heads) for site in sites}
    wanted = _wanted(tokens[0], len(prompt), evidence)

    def see(module: nn.Module, start: int, weights: Tensor) -> None:
        site = owners.get(id(module))
        if site is None:
            return
        queries, keys = weights.shape[1:]
        rows = torch.arange(start, start + queries, device=weights.device)
        back = rows[:, None] - torch.arange(keys, device=weights.device)
        sums[site.name][0] += (weights * back).sum((1, 2)).cpu()
        sums[site.name][1] += weights[:, :, :FIRST].sum((1, 2)).cpu()
        for place, good in wanted.items():
            if start <= place < start + queries:
                most = weights[:, place - start].argmax(-1)
                copied[site.name] += torch.isin(most, good).float().cpu()

    forget_lengths(network)
    with watched_attention(network, see):
        network(input_ids=tokens, **last_logits(network, 1), use_cache=False)
    if not any(total.any() for total in sums.values()):
        raise LongsealError(
            f"what heads attend to cannot be seen in {type(network).__name__}: it does not take "
            "transformers' attention interface"
        )
    count = tokens.shape[1]
    return [
        Look(
            head,
            float(sums[site.name][0, number]) / count,
            float(sums[site.name][1, number]) / count,
            float(copied[site.name][number]) / len(wanted) if wanted else None,
        )
        for head, (site, number) in seats(sites).items()
    ]


def mean_looks(prompts: Sequence[Sequence[Look]]) -> tuple[Look, ...]:
    """Of what `looks` saw at several prompts, the mean of each head."""

    def over(same: Sequence[Look]) -> Look:
        copies = [look.copies for look in same if look.copies is not None]
        return Look(
            same[0].head,
            mean(look.distance for look in same),
            mean(look.first for look in same),
            mean(copies) if copies else None,
        )

    return tuple(over(same) for same in zip(*prompts, strict=True))


def _wanted(tokens: Tensor, prompt: int, evidence: tuple[int, int] | None) -> dict[int, Tensor]:
    """By the place that predicts an answer's token: where that token stands in the evidence."""
    if evidence is None:
        return {}
    start, end = evidence
    found = {}
    for place in range(prompt, len(tokens)):
        good = (tokens[start:end] == tokens[place]).nonzero()[:, 0] + start
        if len(good):
            found[place - 1] = good
    return found


def _attention_of(model: LanguageModel, path: str) -> int:
    """Identity of the module that attends before a projection: the one it lies in."""
    return id(model.network.get_submodule(path.rpartition(".")[0]))
