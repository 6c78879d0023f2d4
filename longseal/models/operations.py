"""What torch's operations do to the elements of their operands, as data."""

# ruff: noqa: SIM905  # words in a string: one a line would fill three screens

from __future__ import annotations

from typing import Any

#: They only rearrange: what is known of each element is rearranged alike.
REARRANGING = frozenset(
    """T mT mH broadcast_to chunk contiguous expand expand_as flatten flip gather getitem
    index_select movedim moveaxis narrow permute ravel repeat repeat_interleave reshape reshape_as
    roll select split split_with_sizes squeeze swapaxes swapdims t tensor_split tile transpose
    unbind unflatten unfold unsqueeze view view_as""".split()
)
#: They put several tensors together.
JOINING = frozenset("cat concat concatenate stack hstack vstack".split())
#: They leave each element where and what it is.
KEEPING = frozenset(
    "to float double half bfloat16 type type_as detach alias clone data dropout cpu cuda".split()
)
#: A factor on one operand passes them unchanged; of quotients, one on the first.
LINEAR = frozenset("mul multiply rmul imul neg".split())
QUOTIENTS = frozenset("div divide truediv itruediv".split())
#: They mix elements even where the shape stays.
MIXING = frozenset(
    """matmul rmatmul imatmul bmm mm addmm baddbmm einsum linear conv1d conv2d cumsum cumprod sort
    argsort topk multi_head_attention_forward""".split()
)
#: Of these, those that may multiply probabilities by values.
PRODUCTS = frozenset("matmul bmm mm einsum".split())
#: They take numbers out of torch's sight.
READING = frozenset("item numpy tolist bool int float index array".split())
#: They take a shape, and no element, from their operand.
CREATING = frozenset(
    """new_empty new_zeros new_ones new_full new_tensor empty_like zeros_like ones_like full_like
    rand_like randn_like""".split()
)

_WRITTEN = frozenset("add sub mul truediv floordiv matmul pow mod and or xor".split())


def writes(function: Any) -> bool:
    """Whether an operation writes into its first operand."""
    name: str = getattr(function, "__name__", "")
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name[3:-2] in _WRITTEN)
    return name.endswith("_")


def plain_name(function: Any) -> str:
    """An operation's plain name: `__mul__`, `mul_` and `mul` are one."""
    name: str = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return name.strip("_")
