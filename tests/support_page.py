"""docs/support.md: `python tests/support_page.py` proves every entry and writes it, in minutes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import transformers
import zoo
from rich.progress import track
from support import Row, prove

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
HEADER = """# Which architectures are supported

Every causal language model that transformers maps (version {version}) was built tiny with random
weights, and is proved or refused with the reason; what cannot be built for text alone is named as
well. `make support` made this page; CI proves every row again.

**exact** means, for scales of kind `head` and `channel` that all differ: the logits with hooks and
those of the folded, saved and reloaded checkpoint differ by at most 1e-5 of the largest logit in
float32 (the largest seen: {difference:.0e}); attaching and detaching leaves the logits bit for bit
as they were; the output projections hold their products, and no other byte of any file changes.
Heads are as many as the config says, and where values come from one projection, changing a head's
rows there was seen to change that head's channels and no other's.

| | entries |
|---|---|
{counts}

"Heads" are query heads / heads with values of their own x channels of one head's output. "Into the
values" says whether `longseal fold --projection value` is exact as well, for scales that are equal
in heads that share a value head; else why it is refused. Layers without heads are left as they are.

| model type | proved | layers scaled | heads | output projection | into the values | other layers |
|---|---|---|---|---|---|---|
"""


def line(row: Row) -> str:
    """One row of the table; without the difference, which depends on the machine."""
    proved = "exact" if row.outcome == "exact" else f"{row.outcome}: {row.reason}"
    cells = (row.entry, proved, row.sites, row.heads, row.projection, row.values, row.skipped)
    return f"| {' | '.join(cells)} |"


def page(rows: list[Row]) -> str:
    """docs/support.md."""
    exact = [row for row in rows if row.outcome == "exact"]
    into_values = sum(row.values == "exact" for row in exact)
    counts = [
        f"| exact | {len(exact)} |",
        f"| exact into the values too | {into_values} |",
        *(
            f"| {reason} | {count} |"
            for reason, count in Counter(
                f"{row.outcome}: {general(row)}" for row in rows if row.outcome != "exact"
            ).most_common()
        ),
    ]
    difference = max(row.difference for row in exact)
    head = HEADER.format(
        version=transformers.__version__, difference=difference, counts="\n".join(counts)
    )
    return head + "\n".join(map(line, rows)) + "\n"


def general(row: Row) -> str:
    """A reason without the names of modules."""
    reason = re.sub(r"[\w.]+\.\d+\.[\w.]+", "a projection", row.reason)
    return re.sub(r"layer \d+", "another layer", reason).removeprefix(f"{row.entry}: ")


def main() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    entries = (*zoo.MODEL_TYPES, *zoo.VARIANTS)
    rows = [prove(entry) for entry in track(entries, "proving")]
    PAGE.write_text(page(rows), "utf-8")


if __name__ == "__main__":
    main()
