"""Every row of docs/support.md holds for the installed transformers."""

import pytest
import support
import support_page
import transformers
import zoo

PAGE = support_page.PAGE.read_text("utf-8")
ENTRIES = (*zoo.MODEL_TYPES, *zoo.VARIANTS)
pytestmark = pytest.mark.skipif(
    f"(version {transformers.__version__})" not in PAGE,
    reason="docs/support.md was made with another transformers: make support",
)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_support_table_holds(entry):
    assert support_page.line(support.prove(entry)) in PAGE.splitlines()


#: Proved in every quick run: one of each way in which attention is computed or laid out.
USUAL = ("bloom", "deepseek_v3", "falcon (new decoder)", "gpt2", "gpt_neox", "qwen3_next", "gemma3")


@pytest.mark.parametrize("entry", USUAL)
def test_the_support_table_holds_for_the_usual_layouts(entry):
    assert support_page.line(support.prove(entry)) in PAGE.splitlines()


def test_every_entry_has_a_row():
    rows = [row.split(" | ")[0].removeprefix("| ") for row in PAGE.splitlines()]
    assert set(ENTRIES) <= set(rows)
    assert "Unproved" not in PAGE
