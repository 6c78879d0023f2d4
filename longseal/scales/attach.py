"""Several adapters of one base on one model: switched between passes, or one for each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from longseal.errors import LongsealError
from longseal.models.load import LanguageModel
from longseal.models.sites import Site
from longseal.scales.adapter import Adapter
from longseal.scales.effect import checked_scaling
from longseal.scales.hooks import Factor
from longseal.scales.scales import Scales


class Attached:
    """Adapters that hang on a model, and which of them are in use; at first none is.

    What is chosen holds for every pass until the next choice.
    """

    def __init__(self, scales: Mapping[str, Scales]) -> None:
        self._scales = dict(scales)
        self._rows: int | None = None
        self._factors: dict[str, Tensor] = {}
        self._open = True

    def use(self, name: str | None) -> None:
        """Scale every row by the adapter of that name; None is the base.

        Raises:
            LongsealError: there is none of that name, or the block has ended.
        """
        self._check(name)
        self._rows = None
        self._factors = {} if name is None else _factors(self._scales[name])

    def rows(self, names: Sequence[str | None]) -> None:
        """Scale row i of a batch by the adapter `names[i]`; None is the base.

        A batch may hold each row several times, one after another, as beams and
        `num_return_sequences` make of it; any other batch is refused when it is run.

        Raises:
            LongsealError: there is none of that name, no row at all, or the block has ended.
        """
        if not names or isinstance(names, str):
            raise LongsealError("name an adapter, or None, for each row of the batch")
        for name in names:
            self._check(name)
        chosen = [None if name is None else _factors(self._scales[name]) for name in names]
        self._rows = len(chosen)
        self._factors = {
            site.name: torch.stack(
                [torch.ones(site.channels) if c is None else c[site.name] for c in chosen]
            )
            for site in next(iter(self._scales.values())).sites
        }

    def _check(self, name: str | None) -> None:
        if not self._open:
            raise LongsealError("the adapters are detached: choose inside the with block")
        if name is not None and name not in self._scales:
            there = ", ".join(self._scales)
            raise LongsealError(f"no adapter is attached as {name!r}: there are {there}")

    def _close(self) -> None:
        self._open = False

    def _factor(self, site: Site) -> Factor:
        """What a projection's input is multiplied by, by what is in use in that pass."""

        def factor(hidden: Tensor) -> Tensor | None:
            known = self._factors.get(site.name)
            if known is None:
                return None
            with torch.inference_mode(False):  # what is kept must serve a backward pass too
                known = self._factors[site.name] = known.to(hidden.device)
            return known if self._rows is None else self._spread(known, hidden)

        return factor

    def _spread(self, factors: Tensor, hidden: Tensor) -> Tensor:
        """One row of `factors`, `(rows, channels)`, a row of the batch: `(batch, 1, channels)`."""
        if hidden.ndim != 3:
            raise LongsealError(
                "adapters cannot be chosen by row in this model: its output projections take "
                f"{tuple(hidden.shape)}, not (batch, seq, channels). Run one adapter at a time"
            )
        batch, rows = hidden.shape[0], len(factors)
        if batch % rows:
            raise LongsealError(
                f"adapters were chosen for {rows} rows, and the batch has {batch}: give rows() one "
                "name for each row of the batch"
            )
        return factors.repeat_interleave(batch // rows, dim=0)[:, None]


@contextmanager
def attached(model: LanguageModel, adapters: Mapping[str, Adapter]) -> Iterator[Attached]:
    """Attach adapters of one base under names, and choose among them inside the block.

    At first the model is as it was: `use` or `rows` chooses. The model is bit-identical after.

    Raises:
        LongsealError: there are none, one was made for another base, or `Adapter.attached` would
            refuse it.
    """
    if not adapters:
        raise LongsealError("there is nothing to attach: name one adapter or more")
    scales = {}
    for name, adapter in adapters.items():
        scales[name] = adapter.on(model.sites).scales
        adapter.check_base(model)
    active = Attached(scales)
    factors = {site.name: active._factor(site) for site in model.sites}
    try:
        with checked_scaling(model.network, model.sites, factors):
            yield active
    finally:
        active._close()


def _factors(scales: Scales) -> dict[str, Tensor]:
    return {site.name: scales.scale(site).detach() for site in scales.sites}
