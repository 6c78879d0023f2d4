"""A chart in the page, with what it shows in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longseal.report.look import Chart


@dataclass(frozen=True)
class Figure:
    """A chart in the page, with what it shows in words.

    Attributes:
        section: where it stands.
    """

    section: str
    title: str
    caption: str
    spec: dict[str, Any]

    @classmethod
    def of(cls, section: str, title: str, caption: str, chart: Chart) -> Figure:
        """The page has its own colours, light or dark: a chart's background is left to it."""
        spec = chart.to_dict()
        spec["config"]["background"] = "transparent"
        return cls(section, title, caption, spec)
