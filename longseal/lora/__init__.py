"""Low-rank adapters (SEAL-L, SEAL-D) of the attention projections, through PEFT: the baselines."""

from longseal.lora.adapter import LoraAdapter
from longseal.lora.either import AnyAdapter, read_adapter
from longseal.lora.low_rank import LowRank

__all__ = ["AnyAdapter", "LoraAdapter", "LowRank", "read_adapter"]
