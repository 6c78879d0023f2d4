"""What a training step needs, measured on short pieces of its row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch
from torch import nn

from longseal.models.arguments import takes
from longseal.models.load import LanguageModel
from longseal.models.saving.ways import Way, saving
from longseal.models.shared_context import shares_context
from longseal.tasks.loss import loss, parts, shares_row
from longseal.tasks.prompt import EncodedSample
from longseal.tuning.learned import Learned
from longseal.tuning.memory.live import Live

_CONTEXT = 96  # tokens of the context in the longer piece, a third of it in the shorter one


def free_bytes(device: torch.device) -> int:
    """Memory that a step may use: what is free, and what torch holds ready."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return int(psutil.virtual_memory().available)


def step_bytes(model: LanguageModel, learned: Learned, encoded: EncodedSample, way: Way) -> int:
    """Most bytes that a training step on `encoded` has at once, beside the weights.

    Two steps on short pieces are measured. What layers need grows in proportion to a row's tokens,
    what `lm_head` needs in proportion to those it sees.

    Args:
        learned: attached already; its gradients are afterwards what they were.
        way: how the layers are run.
    """
    rows = parts(model, encoded)  # before anything is counted: a network is tried out once
    context = min(_CONTEXT, len(encoded.context))
    pieces = [_piece(encoded, tokens) for tokens in (max(1, context // 3), context)]
    with _gradients_apart(learned), saving(model.network, way):
        short, longer = (_measure(model, piece) for piece in pieces)
    few = takes(model.network, "logits_to_keep")
    most = 0.0
    for part in rows:
        answers = sum(map(len, part.answers))
        tokens = part.tokens - len(part.answers)  # an answer's last token is not run
        head = longer.head * (answers / longer.answers if few else tokens / longer.tokens)
        forward, kept, backward = (
            now + (now - before) / max(1, longer.tokens - short.tokens) * (tokens - longer.tokens)
            for before, now in zip(short.layers, longer.layers, strict=True)
        )
        masks = _mask_bytes(model, part, tokens, way) + _far_bytes(model, tokens, way)
        most = max(most, forward + masks, kept + head + masks, backward + masks)
    return round(most)


def _mask_bytes(model: LanguageModel, part: EncodedSample, tokens: int, way: Way) -> int:
    """Of the masks, which grow with the square of the tokens: pieces say nothing of them.

    Questions that share a row have one for their strip in each layer, a row for each head of a
    group; where they do not, transformers makes one for windowed layers once the row is beyond the
    window. They are kept if all is, but for the first layer, where nothing below is learned.
    """
    size = model.network.dtype.itemsize
    config = model.network.config.get_text_config(decoder=True)
    layers = len(model.sites)
    if shares_row(model, part):
        strip = (tokens - len(part.context)) * tokens
        group = max(site.n_heads // site.n_kv_heads for site in model.sites)
        if _is_far(model, tokens):  # the strip meets near and far keys
            group *= 2
        entries, bools = group * strip, 0  # its bools are gone before a layer needs most
    else:
        window = getattr(config, "sliding_window", None)
        if not window or tokens <= window or shares_context(model.network):
            return 0
        kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
        layers = kinds.count("sliding_attention")
        entries = bools = tokens**2
    return bools + size * entries * (max(1, layers - 1) if way == "everything" else 1)


def _is_far(model: LanguageModel, tokens: int) -> bool:
    """Whether a row is longer than Self-Extend's neighbours; the pieces are not."""
    return model.extension is not None and 0 < model.extension.neighbours < tokens


def _far_bytes(model: LanguageModel, tokens: int, way: Way) -> int:
    """Of Self-Extend beyond its neighbours: queries and keys turned on, and what a block meets.

    The former are kept in every layer if all is; keys and values of the last block have twice their
    width.
    """
    if not _is_far(model, tokens):
        return 0
    size = tokens * model.network.dtype.itemsize
    turned = [(site.n_heads + site.n_kv_heads) * site.width for site in model.sites]
    met = max(4 * site.n_kv_heads * site.width for site in model.sites)
    return size * ((sum(turned) if way == "everything" else max(turned)) + met)


@dataclass(frozen=True)
class _Measured:
    """Bytes of one step on one row.

    Attributes:
        tokens: of the row.
        answers: those that are predicted.
        layers: most at once before `lm_head`, all that is there as it begins, and most at once
            after its backward pass.
        head: what comes to that meanwhile.
    """

    tokens: int
    answers: int
    layers: tuple[int, int, int]
    head: int


def _measure(model: LanguageModel, piece: EncodedSample) -> _Measured:
    network = model.network
    live = Live(model.device, [*network.parameters(), *network.buffers()])
    marks: list[tuple[int, int]] = []

    def mark(_: object) -> None:
        marks.append((live.peak, live.bytes))
        live.peak = live.bytes

    def at_head(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        mark(args)
        args[0].register_hook(mark)

    head = network.get_output_embeddings()
    assert isinstance(head, nn.Module)
    hook = head.register_forward_pre_hook(at_head)
    try:
        with live:
            loss(model, piece, backward=True)
    finally:
        hook.remove()
    (forward, kept), (head_peak, _) = marks
    answers = len(piece.answers[0])
    tokens = piece.tokens - 1
    return _Measured(tokens, answers, (forward, kept, live.peak), head_peak - kept)


def _piece(encoded: EncodedSample, tokens: int) -> EncodedSample:
    """The sample's first question on so many tokens of its context."""
    one = encoded.only([0])
    return EncodedSample(encoded.context[-tokens:], one.questions, one.answers, one.source)


@contextmanager
def _gradients_apart(learned: Learned) -> Iterator[None]:
    parameters = list(learned.parameters.values())
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
