"""Which projections give an attention layer its queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from transformers import PreTrainedModel

from longseal.errors import LongsealError
from longseal.models.sites import Site
from longseal.models.structure import other_owner, short_pass, watch_pass
from longseal.models.trace import Trace
from longseal.models.value_check import is_plain


def attention_projections(network: PreTrainedModel, sites: Sequence[Site]) -> tuple[str, ...]:
    """Every projection on the way from a layer's input to its heads, and the output projections.

    Found by watching a short pass, as the sites are: what the softmax and the values depend on
    inside the attention module, whatever it is called. A fused projection is one; where queries,
    keys or values are made in two steps, as in multi-head latent attention, both are; a gate that
    only multiplies the heads' outputs is none.

    Returns:
        Paths, in the network's own order.

    Raises:
        LongsealError: queries, keys or values come from something that is no projection, or from
            one whose weight does more than that, or is used elsewhere too.
    """
    seen, _ = watch_pass(network, short_pass(network))
    found = {site.name: _of_site(seen, site) for site in sites}
    everywhere = {name for names in found.values() for name in names}
    for site in sites:
        _refuse_foreign(seen, site, everywhere)
    names = sorted(everywhere, key=seen.names.index)
    for name in names:
        _refuse_unfit(network, seen, name)
    return tuple(names)


def _of_site(seen: Trace, site: Site) -> set[str]:
    """The paths of one layer's projections."""
    nearest = {n for n in _feeding(seen, site) if _layer(seen.names[n]) == _layer(site.name)}
    if not nearest:
        raise LongsealError(
            f"the queries, keys and values of {site.name} come from no projection of its layer: "
            "tune scales (--kind channel) instead"
        )
    module = _common([site.name, *(seen.names[n] for n in nearest)])
    inside = set(_upstream(seen.before, nearest, seen.names, f"{module}."))
    return {seen.names[n] for n in inside} | {site.name}


def _upstream(
    before: Mapping[int, set[int]], numbers: Iterable[int], names: Sequence[str], prefix: str
) -> Iterator[int]:
    """These projections, and where one takes its input from others of the module alone, those.

    One that takes it from outside as well reads the layer's input: in a network that runs its
    layers more than once, what came before it is the layer's own output.
    """
    waiting, known = list(numbers), set[int]()
    while waiting:
        number = waiting.pop()
        if number in known or not names[number].startswith(prefix):
            continue
        known.add(number)
        yield number
        above = before.get(number, set())
        if all(names[other].startswith(prefix) for other in above):
            waiting += above


def _refuse_foreign(seen: Trace, site: Site, adapted: set[str]) -> None:
    """Refuse a layer that takes queries, keys or values from what would stay as it is.

    Keys and values of another layer's projections are theirs.
    """
    foreign = sorted({seen.names[n] for n in _feeding(seen, site)} - adapted)
    if foreign:
        raise LongsealError(
            f"not all queries, keys and values of {site.name} come from projections of its own: "
            f"some from {foreign[0]}. Tune scales (--kind channel) instead"
        )


def _refuse_unfit(network: PreTrainedModel, seen: Trace, name: str) -> None:
    module = network.get_submodule(name)
    reason = None
    if is_plain(module) is False:
        reason = f"({type(module).__name__}) does more than multiply by its weight"
    elif name in seen.bare:
        reason = "has a weight that is used outside of that module"
    elif other := other_owner(network, seen, name):
        reason = f"has the weight of {other} too"
    if reason:
        raise LongsealError(
            f"{name} {reason}, so not all of q, k, v and output can be adapted: tune scales "
            "(--kind channel) instead"
        )


def _feeding(seen: Trace, site: Site) -> set[int]:
    return {n for mark in seen.inputs[site.name] if mark is not None for n in mark.feeding}


def _layer(path: str) -> str:
    """A path up to its first number; of what lies outside of all lists, nothing."""
    parts = path.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdigit()), -1)
    return ".".join(parts[: place + 1])


def _common(paths: Sequence[str]) -> str:
    """The path of the innermost module around all of these."""
    parts = [path.split(".")[:-1] for path in paths]
    shared = 0
    while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ".".join(parts[0][:shared])
