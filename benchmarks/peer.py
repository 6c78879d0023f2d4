"""The paper's recipe as anyone would run it today: PEFT's IA3 and the Hugging Face Trainer.

One number a channel at the input of every output projection (SEAL-C, our kind `channel`), one
question a sample, the prompt masked from the loss, AdamW at a constant rate without decay, batches
of one, one epoch (paper section 4). All else is the Trainer's default; what would only cost it time
is off: logs, evaluations, checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import torch
from peft import IA3Config, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
)

from longseal.files import Log
from longseal.models.sites import Site
from longseal.scales import Scales
from longseal.scales.reading import PREFIX, SUFFIX
from longseal.tasks.prompt import EncodedSample

RATE = 2e-2  # the paper's for SEAL-C on line retrieval
#: Memory of a step of SmolLM2-135M in float32: 1.55 MB were measured, at 640 tokens.
BYTES_A_TOKEN = 1_800_000

Row = dict[str, list[int]]


def rows(samples: Sequence[EncodedSample]) -> list[Row]:
    """Each sample with its first question as a row of tokens, the answer alone to be learned."""
    made = []
    for sample in samples:
        prompt, answer = sample.prompt(0), sample.answers[0]
        labels = [-100] * len(prompt) + [*answer]
        made.append({"input_ids": [*prompt, *answer], "labels": labels})
    return made


def load(source: str) -> PreTrainedModel:
    """The model as transformers loads it, in float32."""
    network: PreTrainedModel = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    return network


def with_vectors(network: PreTrainedModel) -> Any:
    """The model with IA3 vectors on the inputs of its output projections; nothing else learns."""
    targets = ["o_proj"]
    config = IA3Config(task_type="CAUSAL_LM", target_modules=targets, feedforward_modules=targets)
    return get_peft_model(network, config)


def needs_checkpointing(tokens: int) -> bool:
    """Whether a step on so many tokens would not fit into the memory that is free."""
    return BYTES_A_TOKEN * tokens > psutil.virtual_memory().available


def train(
    network: Any, data: Sequence[Row], folder: Path, *, rate: float = RATE, cpu: bool = True
) -> None:
    """Train for one epoch. The vectors after each sample are kept, with the seconds so far.

    Layers are checkpointed only where the longest row would not fit otherwise; the log says so.

    Args:
        network: what `with_vectors` gives.
        folder: where `log.jsonl` and a file a sample go.
        cpu: whether to leave a GPU alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "log.jsonl")
    saves_memory = cpu and needs_checkpointing(max(len(row["labels"]) for row in data))
    log.append({"event": "start", "samples": len(data), "checkpointing": saves_memory})
    saving: dict[str, Any] = {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    }
    settings = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=1,
        learning_rate=rate,
        lr_scheduler_type="constant",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,  # there are none, and a list has no columns
        label_names=["labels"],
        use_cpu=cpu,
        **(saving if saves_memory else {}),
    )
    Trainer(
        model=network,
        args=settings,
        train_dataset=list(data),
        data_collator=default_data_collator,
        callbacks=[_Keeper(log, folder)],
    ).train()


def scales(vectors: Mapping[str, Tensor], sites: Sequence[Site]) -> Scales:
    """PEFT's vectors, `(1, channels)` by site name, as our scales."""
    deltas = {
        site.name: vectors[site.name].float().cpu().view(site.n_heads, site.width) - 1
        for site in sites
    }
    return Scales("channel", tuple(sites), deltas)


def vectors_of(network: Any) -> dict[str, Tensor]:
    """The vectors as they stand, by the site's name."""
    found: dict[str, Tensor] = get_peft_model_state_dict(network)
    return {
        key.removeprefix(PREFIX).removesuffix(SUFFIX): vector.detach().clone()
        for key, vector in found.items()
    }


def file_of(folder: Path, step: int) -> Path:
    """Where the vectors after a step are kept."""
    return folder / f"step-{step:04d}.safetensors"


class _Keeper(TrainerCallback):
    """Keeps the vectors after every sample; that takes milliseconds."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log, self._folder, self._began = log, folder, 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The clock starts when all is ready, which is kind to this side."""
        self._began = monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """One sample is done."""
        seconds = monotonic() - self._began
        save_file(vectors_of(kwargs["model"]), file_of(self._folder, state.global_step))
        done = {"step": state.global_step, "seconds": round(seconds, 2)}
        self._log.append({"event": "step", **done})
