"""What is special about a family of models, as data."""

#: Names that families give to the module that mixes the heads' outputs, most usual first.
OUTPUT_PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj", "wo", "attn_out", "proj")

#: What the name of an attention module contains, in any family.
ATTENTION_WORDS = ("attn", "attention")
