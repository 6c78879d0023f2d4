"""What the support table claims of a family, proved on a tiny random model of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import zoo
from safetensors.torch import load_file
from transformers import PreTrainedModel

from longseal import Adapter, LongsealError, fold
from longseal.models.arguments import takes
from longseal.models.fingerprint import fingerprint
from longseal.models.sites import Structure, ValueRows
from longseal.models.structure import find_structure
from longseal.scales import Scales

TOLERANCE = 1e-5  # of the largest logit, in float32

#: Models whose layers have other numbers of heads than any field of their config.
UNCOUNTED = {
    "diffllama": "two softmaxes are subtracted to make one head's output",
    "mimo_v2_flash": "sliding layers double the key-value heads",
}


@dataclass(frozen=True)
class Row:
    """One entry of the table.

    `difference` is the largest between hooked and folded logits, as a share of the largest logit.
    """

    entry: str
    outcome: str
    reason: str = ""
    sites: str = ""
    heads: str = ""
    projection: str = ""
    values: str = ""
    skipped: str = ""
    difference: float = 0.0


class Unproved(AssertionError):  # noqa: N818 - what it says
    """The claim does not hold: a defect."""


def prove(entry: str) -> Row:
    """Prove that one family is scaled and folded exactly, or say why it is refused."""
    try:
        made = zoo.build(entry)
    except zoo.NotBuilt as reason:
        return Row(entry, "not built", str(reason))
    with TemporaryDirectory() as place:
        base = Path(place, "base")
        made.save_pretrained(base, max_shard_size="100KB")
        try:
            find_structure(made)
        except LongsealError as refused:
            return Row(entry, "refused", str(refused).split(": ", 1)[-1])
        network = reloaded(type(made), base)
        structure = find_structure(network)
        check_heads(entry, network, structure)
        differences = [
            folded_as_hooked(network, scales(structure, kind), base, Path(place, kind), "output")
            for kind in ("head", "channel")
        ]
        values = next((s.values for s in structure.sites if isinstance(s.values, str)), "exact")
        if values == "exact":
            grouped = scales(structure, "channel", grouped=True)
            target = Path(place, "value")
            differences.append(folded_as_hooked(network, grouped, base, target, "value"))
    if max(differences) > TOLERANCE:
        raise Unproved(f"{entry}: hooked and folded logits differ by {max(differences):.1e}")
    return Row(
        entry,
        "exact",
        sites=f"{len(structure.sites)} of {len(structure.sites) + len(structure.skipped)}",
        heads=" or ".join(
            sorted({f"{s.n_heads}/{s.n_kv_heads} x {s.width}" for s in structure.sites})
        ),
        projection=" or ".join(sorted({kind_of(network, s.name) for s in structure.sites})),
        values=values,
        skipped="; ".join(structure.by_reason()),
        difference=max(differences),
    )


def reloaded(kind: type[PreTrainedModel], folder: Path) -> PreTrainedModel:
    """What transformers loads; by class, as it finds none for the config that some entries save."""
    network = kind.from_pretrained(folder, dtype=torch.float32)
    network.eval()
    return network


def kind_of(network: PreTrainedModel, name: str) -> str:
    """`self_attn.o_proj (Linear)`: where in its layer the projection is, and its class."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), -1)
    return f"{'.'.join(parts[number + 1 :])} ({type(network.get_submodule(name)).__name__})"


@torch.no_grad()
def logits(network: PreTrainedModel) -> torch.Tensor:
    options = {"use_cache": False} if takes(network, "use_cache") else {}
    return network(**zoo.inputs(network), **options).logits


def scales(structure: Structure, kind: str, *, grouped: bool = False) -> Scales:
    """Scales that are all different; `grouped`: alike in heads that share a value head."""
    random = torch.Generator().manual_seed(3)
    zeros = Scales.zeros(kind, structure.sites)
    deltas = {n: 0.3 * torch.randn(d.shape, generator=random) for n, d in zeros.deltas.items()}
    for site in structure.sites if grouped else ():
        first = site.values.first
        deltas[site.name] = deltas[site.name][[first.index(row) for row in first]]
    return Scales(kind, zeros.sites, deltas)


@contextmanager
def hooked(network: PreTrainedModel, factors: dict[str, torch.Tensor]):
    """Multiply the inputs of modules, without longseal's own hooks."""

    def scaling(factor):
        return lambda _, args: (args[0] * factor, *args[1:])

    handles = [
        network.get_submodule(name).register_forward_pre_hook(scaling(factor))
        for name, factor in factors.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def folded_as_hooked(
    network: PreTrainedModel, chosen: Scales, base: Path, target: Path, projection: str
) -> float:
    """Fold files, reload, compare logits; nothing but the scaled weights may differ in a byte."""
    factors = {s.name: chosen.scale(s) for s in chosen.sites}
    plain = logits(network)
    with hooked(network, factors):
        wanted = logits(network)
    with chosen.attached(network):
        if not torch.equal(logits(network), wanted):
            raise Unproved("longseal's hooks and plain ones differ")
    if not torch.equal(logits(network), plain):
        raise Unproved("detaching left something behind")
    if (wanted - plain).abs().max() < 1e-3:
        raise Unproved("the scales change nothing")
    adapter = Adapter(chosen, str(base), fingerprint(network), {})
    fold(base, adapter, target, projection=projection)
    check_changed(network, chosen, changed_tensors(base, target), projection)
    difference = (logits(reloaded(type(network), target)) - wanted).abs().max()
    return float(difference / wanted.abs().max())


def changed_tensors(base: Path, target: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The tensors that differ, before and after; anything else that differs is a defect."""
    before, after = ({p.name: p for p in f.iterdir()} for f in (base, target))
    if after.keys() - before.keys() != {"longseal.json"} or before.keys() - after.keys():
        raise Unproved("files appeared or went missing")
    changed = {}
    for name in before:
        old, new = before[name].read_bytes(), after[name].read_bytes()
        if old == new:
            continue
        if not name.endswith(".safetensors") or len(old) != len(new):
            raise Unproved(f"{name} changed")
        tensors, folded = load_file(before[name]), load_file(after[name])
        pairs = {key: (tensors[key], folded[key]) for key in tensors}
        changed |= {key: (a, b) for key, (a, b) in pairs.items() if not same_bytes(a, b)}
        header = 8 + int.from_bytes(old[:8], "little")
        if old[:header] != new[:header]:
            raise Unproved(f"the header of {name} changed")
    return changed


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def check_changed(
    network: PreTrainedModel,
    chosen: Scales,
    changed: dict[str, tuple[torch.Tensor, torch.Tensor]],
    projection: str,
) -> None:
    """Only what should change did: each output projection's weight; V's weights and biases."""
    if projection == "value":
        modules = {network.get_submodule(site.values.name) for site in chosen.sites}
        if len(changed) != sum(1 + (module.bias is not None) for module in modules):
            raise Unproved(f"folding into the values changed {sorted(changed)}")
        return
    wanted = []
    for site in chosen.sites:
        weight, scale = network.get_submodule(site.name).weight, chosen.scale(site)
        wanted.append(weight * (scale if site.input_axis == 1 else scale[:, None]))
    for name, (_, new) in changed.items():
        fits = [i for i, t in enumerate(wanted) if t.shape == new.shape and torch.equal(t, new)]
        if not fits:
            raise Unproved(f"{name} changed, and is no scaled output projection")
        del wanted[fits[0]]
    if wanted:
        raise Unproved(f"{len(wanted)} output projections were not changed")


def check_heads(entry: str, network: PreTrainedModel, structure: Structure) -> None:
    """Heads are as the config counts them, and as changing a head's values shows them."""
    queries, values = (set(head_counts(network.config.to_dict(), kv=kv)) for kv in (False, True))
    for site in () if entry in UNCOUNTED else structure.sites:
        if site.n_heads not in queries:
            raise Unproved(f"{site.name}: the config knows no {site.n_heads} heads")
        if site.n_kv_heads not in values | {site.n_heads, 1}:
            raise Unproved(f"{site.name}: the config knows no {site.n_kv_heads} value heads")
    for site in structure.sites:
        if not isinstance(site.values, ValueRows):
            continue
        for head in {0, site.n_heads // 2, site.n_heads - 1}:
            check_channels(network, site, head)


def head_counts(settings: dict[str, object], *, kv: bool) -> Iterator[int]:
    """Every number that a config, or one inside it, gives as one of query or key-value heads."""
    for name, value in settings.items():
        words = str(name)
        if isinstance(value, dict):
            yield from head_counts(value, kv=kv)
        elif "head" in words and "dim" not in words and kv == ("kv" in words or "value" in words):
            yield from (
                n for n in (value if isinstance(value, list) else [value]) if type(n) is int
            )


@torch.no_grad()
def check_channels(network: PreTrainedModel, site, head: int) -> None:
    """Other weights in a head's value rows change its channels, and no other head's."""
    weight = network.get_submodule(site.values.name).weight
    first = site.values.first[head]
    part = weight.narrow(site.values.output_axis, first, site.width)
    before, kept = inputs_of(network, site.name), part.clone()
    part.mul_(1.5)
    changed = (inputs_of(network, site.name) - before).abs().reshape(-1, before.shape[-1]).amax(0)
    part.copy_(kept)
    mine = torch.tensor([start == first for start in site.values.first])
    expected = mine.repeat_interleave(site.width)
    if not torch.equal(changed > 1e-6, expected):
        raise Unproved(f"{site.name}: head {head} is not where it was said to be")


def inputs_of(network: PreTrainedModel, name: str) -> torch.Tensor:
    """What a projection receives."""
    seen = []
    hook = network.get_submodule(name).register_forward_pre_hook(
        lambda _, args: seen.append(args[0].clone())
    )
    logits(network)
    hook.remove()
    return seen[0]  # a layer that is run again and again sees later what it did itself
