"""Settings of each method for a wanted length, from the model's own window, and why these."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import ceil

from transformers import PreTrainedConfig

from longseal.config import Extension
from longseal.config.extension import Method
from longseal.errors import LongsealError
from longseal.models.context.rope import extend_config, window
from longseal.models.windowed import attends_to_everything

_ABOUT: dict[Method, str] = {
    "yarn": "slow turns are stretched, fast ones kept, attention a little sharpened",
    "ntk": "a greater base: the slowest turn is stretched by the factor, the faster the less",
    "linear": "every turn is stretched by the factor: near tokens move together too",
    "dynamic": "as ntk, by as much as a row needs; rows within the own window stay as they are",
}


@dataclass(frozen=True)
class Choice:
    """An extension for a model.

    Attributes:
        window: tokens that it reaches.
        why: why these settings; or why this model cannot be extended so.
        refused: whether it cannot.
    """

    extension: Extension
    window: int
    why: str
    refused: bool = False


def choices(config: PreTrainedConfig, wanted: int, *, force: bool = False) -> list[Choice]:
    """What each method would have to be set to, those first that a config can say.

    Args:
        config: of the model as it is.
        wanted: tokens that are to be reached.
        force: see `extend_config`.

    Raises:
        LongsealError: the model does not say its window, reaches so far already, or has no rotary
            positions.
    """
    own = window(config)
    text = config.get_text_config(decoder=True)
    if own is None:
        raise LongsealError(f"{text.model_type} does not say its window: nothing can be chosen")
    if wanted <= own:
        raise LongsealError(f"the model reaches {own:,} tokens by itself: no extension is needed")
    made = [_judged(config, choice, force=force) for choice in _wished(own, wanted)]
    if all(choice.refused for choice in made):
        raise LongsealError(made[0].why)
    return made


def _wished(own: int, wanted: int) -> Iterator[Choice]:
    factor = ceil(4 * wanted / own) / 4
    for method, about in _ABOUT.items():
        extension = Extension(method, factor)
        yield Choice(
            extension, extension.window(own), f"{wanted:,} / {own:,}, in quarters; {about}"
        )
    yield _grouped(own, wanted)


def _grouped(own: int, wanted: int) -> Choice:
    """Self-Extend by its authors' rule, `neighbours + (wanted - neighbours) / group < own / 2`.

    Source: https://github.com/datamllab/LongLM, "Emperical Rule" (between 1/2 and 2/3 of the
    window). Their neighbours for Llama 2 are a quarter of its window.
    """
    near = max(1, own // 4)
    group = max(2, ceil((wanted - near) / max(1, own / 2 - near)))
    while Extension("self-extend", group=group, neighbours=near).window(own) < wanted:
        group += 1  # of a window of a few tokens
    extension = Extension("self-extend", group=group, neighbours=near)
    furthest = near + (wanted - near) / group
    why = (
        f"neighbours: a quarter of the window; the smallest group by which {wanted:,} tokens come "
        f"to {furthest:,.0f} positions, half of the window at most: its authors' rule, for far "
        "positions are trained least"
    )
    return Choice(extension, extension.window(own), why)


def _judged(config: PreTrainedConfig, choice: Choice, *, force: bool) -> Choice:
    """The choice, or why the model cannot be extended so; the rest is tried out when it is."""
    extension = choice.extension
    why = None
    if extension.method == "self-extend" and not attends_to_everything(config):
        why = "some layers see a sliding window, a chunk or a state only"
    try:
        extend_config(deepcopy(config), extension, force=force)
    except LongsealError as error:
        why = str(error)
    return choice if why is None else Choice(extension, choice.window, why, refused=True)
