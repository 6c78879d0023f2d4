"""Charts, and one HTML page that says what a run found."""

from longseal.report.charts import accuracy_chart, scales_chart, spread_chart, training_chart
from longseal.report.look import save_chart
from longseal.report.page import report

__all__ = [
    "accuracy_chart",
    "report",
    "save_chart",
    "scales_chart",
    "spread_chart",
    "training_chart",
]
