"""Every row of docs/support.md holds for the installed transformers."""

import pytest
import support
import support_page
import transformers
import zoo

PAGE = support_page.PAGE.read_text("utf-8")
ENTRIES = (*zoo.MODEL_TYPES, *zoo.VARIANTS)
#: Proved in every quick run: one of each way in which attention is computed or laid out.
USUAL = {"bloom", "deepseek_v3", "falcon (new decoder)", "gpt2", "gpt_neox", "qwen3_next", "gemma3"}


@pytest.mark.parametrize(
    "entry", [e if e in USUAL else pytest.param(e, marks=pytest.mark.slow) for e in ENTRIES]
)
def test_an_architecture_is_proved_and_the_support_table_says_so(entry):
    row = support.prove(entry)
    if f"(version {transformers.__version__})" in PAGE:  # else: make support
        assert support_page.line(row) in PAGE.splitlines()


def test_every_entry_has_a_row():
    rows = [row.split(" | ")[0].removeprefix("| ") for row in PAGE.splitlines()]
    assert set(ENTRIES) <= set(rows)
