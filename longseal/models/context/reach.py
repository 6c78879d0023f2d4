"""How far a model reaches, by itself or by an extension, and turning that on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from longseal.config import Extension
from longseal.errors import LongsealError
from longseal.models.context.effect import check_takes_effect
from longseal.models.context.folded import written_extension
from longseal.models.context.rope import extend_config, window
from longseal.models.context.self_extend import self_extend


@dataclass(frozen=True)
class Reach:
    """How far a model reaches, and by what.

    Attributes:
        own: the window without an extension.
        window: with it.
    """

    own: int | None
    window: int | None
    extension: Extension | None


class Reaching:
    """What has a window, and perhaps an extension that it is due to."""

    window: int | None
    extension: Extension | None

    @property
    def origin(self) -> dict[str, Any]:
        """What a result has to say of it beside its source: its window, and what extends it."""
        extend = {} if self.extension is None else {"extend": str(self.extension)}
        return {"window": self.window, **extend}


def reached(source: str, settings: PreTrainedConfig, extend: str | None, *, force: bool) -> Reach:
    """Merge an extension into a model's settings, in place.

    Raises:
        LongsealError: it cannot be extended so, or was when it was folded.
    """
    own, written = window(settings), written_extension(source)
    if written is not None and written.in_config:
        if extend is not None:
            raise LongsealError(
                f"{source} has {written.extension} in its config: leave --extend out"
            )
        return Reach(own, written.window, written.extension)
    if extend is None:
        return Reach(own, own, None)
    extension = Extension.parse(extend)
    extend_config(settings, extension, force=force)
    assert own is not None, "or it would have been refused"
    return Reach(own, extension.window(own), extension)


def turn_on(network: PreTrainedModel, settings: PreTrainedConfig, reach: Reach) -> None:
    """Turn on what no config can say, and look whether what one says takes effect.

    Args:
        settings: what the network was built from.

    Raises:
        LongsealError: it does not, or the network cannot be extended so.
    """
    extension = reach.extension
    assert extension is not None
    assert reach.own is not None
    assert reach.window is not None
    if extension.method == "self-extend":
        self_extend(network, extension, reach.own)
    else:
        check_takes_effect(network, settings, extension, reach.window)
