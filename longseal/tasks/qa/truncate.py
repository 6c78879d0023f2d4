"""The cut that LongBench and LV-Eval make in prompts that are too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def truncate_middle(
    text: str,
    limit: int,
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[Sequence[int]], str],
) -> str:
    """Keep the first and the last `limit // 2` tokens of a prompt, before a template is applied.

    As published, with its flaws: both halves are decoded, and the text is encoded anew later. So
    special tokens within it are lost, a character that the cut divides turns into U+FFFD, and the
    new tokens may be a few more or fewer than `limit`. LV-Eval's default of 15,500 cuts items of
    16,000 words.

    Args:
        text: the whole prompt.
        limit: tokens; a text of no more than that stays as it is (LongBench takes 31,500 for a
            window of 32K, LV-Eval 15,500 unless told).
        encode: text to tokens, a BOS included where the tokenizer puts one (it counts).
        decode: tokens to text, special tokens left out.

    Raises:
        ValueError: less than two tokens are to be kept.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}: two tokens are the least, one from each end")
    tokens = encode(text)
    if len(tokens) <= limit:
        return text
    half = limit // 2
    return decode(tokens[:half]) + decode(tokens[-half:])
