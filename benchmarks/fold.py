"""What a fold costs beside a plain copy of the same folder: the figures of docs/folding.md.

A checkpoint in the shape of a Llama is made of random bfloat16 numbers, in four shards; no model is
ever built. Then `shutil.copytree` and `longseal.fold` take turns, each in a process of its own that
imports the same; the time of the call is compared, that of the imports stands beside it. Everything
lies in a temporary folder, which is removed.

    python benchmarks/fold.py [--size 4.2] [--rounds 3] [--place /tmp]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from cyclopts import run
from safetensors.torch import save_file

from longseal import Adapter
from longseal.measure import machine
from longseal.models.fingerprint import Fingerprint, places
from longseal.models.sites import Site, ValueRows
from longseal.scales import Scales

SHARDS = 4
HEAD = 128
#: One copy or fold, measured from inside: seconds of the imports and of the call, and peak memory.
#: Both import the same, so that both begin as long after the last writing: how fast a disk takes
#: data depends on that.
CALL = """
import json, resource, shutil, sys
from time import monotonic

def peak():
    try:  # getrusage counts what the process that started this one held (exec keeps the maximum)
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if "VmHWM" in line) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

began = monotonic()
from longseal.fold import fold
imports, memory, started = monotonic() - began, peak(), monotonic()
what, base, adapter, target = sys.argv[1:]
rms = None
if what == "copy":
    shutil.copytree(base, target)
else:
    rms = fold(base, adapter, target).rounding_rms
seconds = monotonic() - started
found = {"seconds": seconds, "imports": imports, "peak": peak(), "peak_imports": memory, "rms": rms}
print(json.dumps(found))
"""


def shapes(size: float) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama of about `size` GB in bfloat16; from 2 GB on shaped as Llama 3 8B."""
    hidden, inner, kv = (4096, 14336, 1024) if size > 2 else (512, 1792, 128)
    vocabulary = 128256 if size > 2 else 4096
    layer = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    each = 2 * sum(map(_count, layer.values()))
    rest = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    layers = max(SHARDS, -int(-(size * 1e9 - 2 * sum(map(_count, rest.values()))) // each))
    return rest | {
        f"model.layers.{number}.{name}.weight": shape
        for number in range(layers)
        for name, shape in layer.items()
    }


def _count(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def make(folder: Path, adapter: Path, size: float) -> None:
    """Write the checkpoint shard by shard, and an adapter with a scale for every channel."""
    folder.mkdir()
    random = torch.Generator().manual_seed(0)
    wanted = list(shapes(size).items())
    total = sum(2 * _count(shape) for _, shape in wanted)
    samples: dict[str, list[float]] = {}
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    number, held = 1, 0
    for place, (name, shape) in enumerate(wanted):
        tensor = torch.randn(shape, generator=random, dtype=torch.bfloat16).mul_(0.02)
        flat = tensor.flatten()
        samples[name] = flat[places(flat.numel())].float().tolist()
        shard[name] = tensor
        held += tensor.nbytes
        last = place == len(wanted) - 1
        if last or (held >= total / SHARDS and number < SHARDS):
            file = f"model-{number:05}-of-{SHARDS:05}.safetensors"
            save_file(shard, folder / file, {"format": "pt"})
            weight_map |= dict.fromkeys(shard, file)
            number, held, shard = number + 1, 0, {}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    hidden = shapes(size)["model.norm.weight"][0]
    layers = sum(name.endswith("o_proj.weight") for name in weight_map)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": shapes(size)["model.layers.0.mlp.up_proj.weight"][0],
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": hidden // HEAD // 4,
        "vocab_size": shapes(size)["model.embed_tokens.weight"][0],
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    heads = hidden // HEAD
    sites = tuple(
        Site(
            f"model.layers.{layer}.self_attn.o_proj",
            layer,
            heads,
            heads // 4,
            HEAD,
            1,
            ValueRows(
                f"model.layers.{layer}.self_attn.v_proj",
                0,
                tuple(HEAD * (head // 4) for head in range(heads)),
            ),
        )
        for layer in range(layers)
    )
    deltas = {site.name: 0.1 * torch.randn(heads, HEAD, generator=random) for site in sites}
    known = Fingerprint("torch.bfloat16", samples)
    Adapter(Scales("channel", sites, deltas), str(folder), known, {}).save(adapter)


def measured(what: str, base: Path, adapter: Path, target: Path) -> dict[str, float]:
    """Copy or fold in a process of its own; the result is removed."""
    os.sync()  # what was left to be written before is not this one's to wait for
    command = [sys.executable, "-c", CALL, what, str(base), str(adapter), str(target)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    shutil.rmtree(target)
    return json.loads(done.stdout.splitlines()[-1])


def main(
    *, size: float = 4.2, rounds: int = 3, place: Path | None = None, quick: bool = False
) -> None:
    """Copy and fold in turn, and print a table and one line of JSON.

    Parameters
    ----------
    size
        GB of weights to make.
    rounds
        How often each is measured.
    place
        Folder to work in; three times the size must be free there.
    quick
        A small trial; its figures say nothing.
    """
    if quick:
        size, rounds = 0.05, 1
    free = shutil.disk_usage(place or "/tmp").free
    if free < 3.2e9 * size:
        raise SystemExit(f"{3.2 * size:.0f} GB are needed and {free / 1e9:.0f} GB are free")
    copies, folds = [], []
    with TemporaryDirectory(dir=place) as work:
        work_in = [Path(work, name) for name in ("base", "adapter", "target")]
        make(*work_in[:2], size)
        largest = max(2 * _count(shape) for shape in shapes(size).values())
        scaled = sum(2 * _count(s) for n, s in shapes(size).items() if n.endswith("o_proj.weight"))
        weights = sum(path.stat().st_size for path in work_in[0].iterdir())
        measured("copy", *work_in)  # not counted: the disk is still busy with what was made
        for turn in range(rounds):
            for what in ("copy", "fold") if turn % 2 == 0 else ("fold", "copy"):
                (copies if what == "copy" else folds).append(measured(what, *work_in))
    seconds = {
        "copy": [run["seconds"] for run in copies],
        "fold": [run["seconds"] for run in folds],
        "imports": [run["imports"] for run in folds],
    }
    result = {
        "machine": machine(torch.device("cpu")),
        "load": [round(load, 2) for load in os.getloadavg()],
        "bytes": weights,
        "scaled_bytes": scaled,
        "largest_tensor": largest,
        "seconds": {name: [round(v, 2) for v in values] for name, values in seconds.items()},
        "fold_to_copy": round(median(seconds["fold"]) / median(seconds["copy"]), 2),
        "peak": max(run["peak"] for run in folds),
        "peak_imports": max(run["peak_imports"] for run in folds),
        "peak_allowed": 3 * largest + 500_000_000,
        "rounding_rms": folds[-1]["rms"],
    }
    print(f"{weights / 1e9:.2f} GB in {SHARDS} shards, {scaled / 1e9:.2f} GB of them scaled")
    print(f"{'':8} {'median':>8}   all")
    for name, values in seconds.items():
        print(f"{name:8} {median(values):6.2f} s   {' '.join(f'{v:.2f}' for v in values)}")
    print(f"fold / copy: {result['fold_to_copy']}")
    print(
        f"peak memory of the fold: {result['peak'] / 1e6:.0f} MB, of the imports alone "
        f"{result['peak_imports'] / 1e6:.0f} MB; allowed are three times the largest tensor and "
        f"500 MB: {result['peak_allowed'] / 1e6:.0f} MB"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    run(main)
