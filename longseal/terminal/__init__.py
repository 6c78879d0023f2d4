"""What a person reads in the terminal: tables, and what to do next."""

from longseal.terminal.probing import probe_tables, quadrant_tables, why_tables
from longseal.terminal.tables import (
    accuracy_table,
    adapter_table,
    changes_table,
    chosen_line,
    comparison_lines,
    cost_table,
    guard_table,
    held_out_table,
    matrix_tables,
    print_next,
    score_table,
)

__all__ = [
    "accuracy_table",
    "adapter_table",
    "changes_table",
    "chosen_line",
    "comparison_lines",
    "cost_table",
    "guard_table",
    "held_out_table",
    "matrix_tables",
    "print_next",
    "probe_tables",
    "quadrant_tables",
    "score_table",
    "why_tables",
]
