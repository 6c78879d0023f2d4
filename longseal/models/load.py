"""Load a causal language model from a hub id, a folder or a GGUF file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.import_utils import is_bitsandbytes_available

from longseal.config import Extension, LoadConfig, Quantization
from longseal.errors import LongsealError
from longseal.models.context.reach import Reaching, reached, turn_on
from longseal.models.default import default_model
from longseal.models.quiet import quiet
from longseal.models.sites import Site, Structure
from longseal.models.structure import find_structure


@dataclass(frozen=True, eq=False)
class LanguageModel(Reaching):
    """A frozen network, its tokenizer, and where its heads meet the output projections.

    Attributes:
        structure: the output projections, and the layers that have no heads.
        source: what was asked for: a hub id, a folder or a GGUF file.
        window: tokens the model was made for, or is extended to; None where it does not say.
        extension: what lets it reach past the window that it was made for; None where nothing does.
        trust_remote_code: whether its own code was allowed, for when it is loaded again.
        quantize: in how many bits its weights were loaded; None: as they are in the files.
    """

    source: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    structure: Structure
    window: int | None
    trust_remote_code: bool = False
    quantize: Quantization | None = None
    extension: Extension | None = None

    @property
    def sites(self) -> tuple[Site, ...]:
        """The output projections that are scaled, in layer order."""
        return self.structure.sites

    @property
    def device(self) -> torch.device:
        """Where inputs have to be."""
        return self.network.device

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens at which the model's own generation settings, or its tokenizer, stop."""
        return stop_ids(self.network.generation_config, self.tokenizer)


def load(
    source: str | Path | None = None, config: LoadConfig | None = None, **fields: Any
) -> LanguageModel:
    """Load a model for evaluation or tuning: frozen and without dropout.

    Args:
        source: hub id, folder or `.gguf` file; SmolLM2-135M-Instruct where it is None.
        config: settings; or give its fields as keywords.

    Raises:
        LongsealError: nothing usable is there, or bitsandbytes is not, which quantises.
    """
    config = config or LoadConfig(**fields)
    source = str(source) if source is not None else str(default_model())
    place, options = locate(source)
    options["trust_remote_code"] = config.trust_remote_code
    device = pick_device(config.device)
    packed = {} if config.quantize is None else _quantized(config, source, device)
    with reading(source, place):
        tokenizer = AutoTokenizer.from_pretrained(place, **options)
        settings = AutoConfig.from_pretrained(place, **options)
    reach = reached(source, settings, config.extend, force=config.force)
    with reading(source, place):
        if config.extend is not None:
            options["config"] = settings
        network = AutoModelForCausalLM.from_pretrained(
            place, dtype=_dtype(config.dtype), use_safetensors=True, **options, **packed
        )
    if "gguf_file" in options:
        _forget_packing(network)
    network.requires_grad_(False)
    network.eval()
    if not packed:
        torch.nn.Module.to(network, device)
    structure = find_structure(network)
    if config.extend is not None:
        turn_on(network, settings, reach)
    return LanguageModel(
        source,
        network,
        tokenizer,
        structure,
        reach.window,
        config.trust_remote_code,
        config.quantize,
        reach.extension,
    )


def load_alike(model: LanguageModel, folder: Path) -> LanguageModel:
    """Load what was folded of `model` as that was loaded: same dtype, device, trust and bits.

    And with the same extension, unless it is folded into the checkpoint too.
    """
    extension = model.extension
    return load(
        folder,
        dtype=str(model.network.dtype).removeprefix("torch."),
        device=str(model.device),
        trust_remote_code=model.trust_remote_code,
        quantize=model.quantize,
        extend=None if extension is None or extension.in_config else str(extension),
        force=True,  # where it was needed, it was given
    )


def stop_ids(
    settings: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase
) -> frozenset[int]:
    """Tokens at which the generation settings, or the tokenizer, stop."""
    ends = None if settings is None else settings.eos_token_id
    found = [*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id]
    return frozenset(token for token in found if token is not None)


def pick_device(name: str) -> torch.device:
    """The device called `name`; for "auto" the best one that is there.

    Raises:
        LongsealError: it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu" and torch.backends.mps.is_available():
            name = "mps"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LongsealError(f"device {name!r} is not available here: try --device cpu") from error
    return device


def locate(source: str) -> tuple[str, dict[str, Any]]:
    """What to hand to transformers: the place, and the GGUF file's name in it."""
    path = Path(source).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LongsealError(f"{source} is no model: the folder has no config.json")
        return str(path), {}
    if path.suffix == ".gguf":
        if not path.is_file():
            raise LongsealError(f"{source} does not exist: check the path of the GGUF file")
        return str(path.parent), {"gguf_file": path.name}
    if path.exists():
        raise LongsealError(f"{source} is neither a folder nor a .gguf file")
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        raise LongsealError(f"{source} does not exist: check the path")
    return source, {}


def _dtype(name: str) -> str | torch.dtype:
    dtype = getattr(torch, name, name)
    assert isinstance(dtype, str | torch.dtype)
    return dtype


def _quantized(config: LoadConfig, source: str, device: torch.device) -> dict[str, Any]:
    """What makes transformers load the weights in 4 or 8 bits, on the device."""
    if source.endswith(".gguf"):
        raise LongsealError(f"{source} is quantised already: leave --quantize out for a GGUF file")
    if device.type == "mps":
        raise LongsealError("--quantize needs a CUDA GPU or the CPU: bitsandbytes has no MPS")
    if not is_bitsandbytes_available():
        raise LongsealError(
            "--quantize needs bitsandbytes: pip install 'longseal[bitsandbytes]', or leave it out"
        )
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # a line a layer on casts, each pass
    computed = torch.bfloat16 if config.dtype == "auto" else _dtype(config.dtype)
    settings = BitsAndBytesConfig(
        load_in_4bit=config.quantize == "4bit",
        load_in_8bit=config.quantize == "8bit",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=computed,
    )
    return {"quantization_config": settings, "device_map": {"": str(device)}}


def _explain(source: str, error: Exception) -> str:
    """What transformers' error means for the user, in a line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
    if "trust_remote_code" in str(error):
        return (
            f"{source} comes with Python code of its own, which is not run unless you allow it: "
            "read it, then use --trust-remote-code (trust_remote_code=True)"
        )
    if Path(source).expanduser().exists():
        return f"{source} cannot be loaded: {first}"
    return (
        f"{source} cannot be loaded: it is neither a path here nor a model that the hub gives "
        f"(misspelt, private, or no connection). {first}"
    )


def _forget_packing(network: PreTrainedModel) -> None:
    """Undo transformers' flag that a model from a GGUF is quantised: its weights are plain."""
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(network, name):
            delattr(network, name)
    vars(network)["is_quantized"] = False
    if hasattr(network.config, "quantization_config"):
        del network.config.quantization_config


@contextmanager
def reading(source: str, place: str) -> Iterator[None]:
    """While a model's files are read by transformers: quiet, and its errors said in a line.

    Raises:
        LongsealError: nothing usable is there.
    """
    local = Path(place).exists()
    # transformers' bars stay where a download is to be seen
    with quiet(), redirect_stderr(StringIO()) if local else nullcontext():
        try:
            if not local:
                hf_hub_download(place, "config.json")  # one clear refusal before anything else
            yield
        except (
            OSError,
            ValueError,
            HFValidationError,
            ImportError,
            KeyError,
            RuntimeError,
            SafetensorError,
        ) as error:
            raise LongsealError(_explain(source, error)) from error
