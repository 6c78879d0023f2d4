"""Too long prompts are cut in the middle as LongBench and LV-Eval cut them, flaws included."""

import pytest
import tiny

from longseal.tasks.qa import truncate_middle

TOKENIZER = tiny.tokenizer()


def encode(text):
    return TOKENIZER(text, add_special_tokens=False).input_ids


def decode(tokens):
    return TOKENIZER.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("limit", "left"),
    [(11, "0123456789"), (10, "0123456789"), (9, "01236789"), (4, "0189"), (2, "09")],
)
def test_the_first_and_the_last_half_are_kept(limit, left):
    assert truncate_middle("0123456789", limit, encode, decode) == left


def test_a_bos_counts_as_a_token_that_is_kept():
    with_bos = truncate_middle("0123456789", 4, lambda text: [0, *encode(text)], decode)
    assert with_bos == "089"


def test_only_a_cut_drops_special_tokens():
    text = "<|turn|>Who?<|end|>"
    assert truncate_middle(text, 6, encode, decode) == text
    assert truncate_middle(text, 5, encode, decode) == "W?"


def test_a_character_that_the_cut_divides_is_lost_and_others_stay():
    text = "北京上海"  # three tokens each
    assert truncate_middle(text, 6, encode, decode) == "北海"
    assert truncate_middle(text, 8, encode, decode) == "北\ufffd\ufffd海"


def test_less_than_a_token_from_each_end_is_refused():
    with pytest.raises(ValueError, match="limit is 1"):
        truncate_middle("0123456789", 1, encode, decode)
