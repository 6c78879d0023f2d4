"""Pages in a real browser, as the tests look at them and as the docs show them.

    python tests/browser.py runs/heads/report.html "at 1,024 tokens" heads.png --hover L1H4

makes a picture of the chart under that heading. It needs Debian's Chromium: apt install chromium.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import cyclopts
from playwright.sync_api import Browser, Locator, Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
MISSING = "no Chromium was found: apt install chromium"
WIDE, PHONE = 900, 390  # pixels across
PATIENCE = 600  # looks at a page that is not drawn yet, 50 ms apart

_HEIGHT = 1000
_LONGEST = 300_000  # ms for any one thing, on a machine that is busy with other work
_MARGIN = 12  # pixels around a picture
_NO_MENU = ".chart details { display: none; } .chart.vega-embed.has-actions { padding: 0; }"
_BOXES = """elements => elements.map(element => {
  const {left, top, right, bottom} = element.getBoundingClientRect();
  const says = element.getAttribute("aria-label") ?? element.textContent;
  return [says, left, top, right, bottom];
})"""
_POINTED = "[role=graphics-symbol]:not([aria-roledescription^=line])"
_ON_TOP = """marks => marks.filter(mark => {
  const {left, top, right, bottom} = mark.getBoundingClientRect();
  return mark === document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
})"""


class Box(NamedTuple):
    """What stands where on the page, in pixels."""

    says: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def inside(self, other: Box) -> bool:
        return (
            other.left - 1 <= self.left
            and other.top - 1 <= self.top
            and self.right <= other.right + 1
            and self.bottom <= other.bottom + 1
        )

    def on(self, other: Box) -> bool:
        """Whether one hides some of the other; text leaves 2 pixels of its box empty."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return min(across, down) > 2


@dataclass
class Opened:
    """A page and what came of opening it.

    Attributes:
        said: all in its console, and errors that nobody caught.
        fetched: addresses of all that it asked for, itself first.
    """

    page: Page
    said: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    @property
    def charts(self) -> list[Locator]:
        """The places of its charts, drawn or not."""
        return self.page.locator(".chart, #vis").all()

    def wait(self) -> None:
        """Until every chart is drawn, something is amiss, or patience is over."""
        for _ in range(PATIENCE):
            if self.said or all(chart.locator(".marks").count() for chart in self.charts):
                return
            self.page.wait_for_timeout(50)

    def in_view(self) -> None:
        """Make the window as high as the page, so that the pointer reaches all of it."""
        height = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({"width": self.page.viewport_size["width"], "height": height})

    def hovered(self, place: tuple[float, float]) -> str:
        """What the tooltip says when the pointer comes to that place; empty where there is none."""
        self.page.mouse.move(0, 0)
        self.page.mouse.move(*place)
        tooltip = self.page.locator("#vg-tooltip-element.visible")
        return tooltip.inner_text() if tooltip.count() else ""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, timeout=_LONGEST)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, path: Path, width: int = WIDE, *, sharpness: float = 1
) -> Iterator[Opened]:
    """Open a file and wait for its charts."""
    page = browser.new_page(
        viewport={"width": width, "height": _HEIGHT}, device_scale_factor=sharpness
    )
    page.set_default_timeout(_LONGEST)
    found = Opened(page)
    page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.said.append(f"uncaught: {error}"))
    page.on("request", lambda request: found.fetched.append(request.url))
    try:
        page.goto(path.resolve().as_uri())
        found.wait()
        yield found
    finally:
        page.close()


def boxes(found: Locator) -> list[Box]:
    """Where elements are, and what they say."""
    return [Box(*each) for each in found.evaluate_all(_BOXES)]


def marks(chart: Locator) -> list[Box]:
    """All that a chart shows, each with its figures as a screen reader says them."""
    return boxes(chart.locator("[role=graphics-symbol]"))


def reachable(chart: Locator) -> list[Box]:
    """The marks whose middle can be pointed at: not lines, and not under another mark."""
    on_top = f"marks => ({_BOXES})(({_ON_TOP})(marks))"
    return [Box(*each) for each in chart.locator(_POINTED).evaluate_all(on_top)]


def words(chart: Locator) -> list[Box]:
    """All that is written in a chart and not hidden to make room."""
    return [box for box in boxes(chart.locator("text:not([opacity='0'])")) if box.says.strip()]


def picture(page: Path, heading: str, out: Path, /, *, hover: str | None = None) -> None:
    """Make a picture, twice the size for sharp screens, of the chart under a heading.

    Parameters
    ----------
    page
        A report.
    heading
        Part of the chart's heading, of no other's.
    out
        The PNG.
    hover
        The head that the pointer is on, such as L1H4.
    """
    with chromium() as browser, opened(browser, page, sharpness=2) as shown:
        shown.page.add_style_tag(content=_NO_MENU)
        shown.in_view()
        figure = shown.page.locator("figure").filter(
            has=shown.page.get_by_role("heading", name=heading)
        )
        if hover is not None:
            chart = figure.locator(".chart")
            named = re.compile(rf"says: {hover}\b")
            (mark,) = (mark for mark in reachable(chart) if named.search(mark.says))
            shown.hovered(mark.middle)
        box = figure.bounding_box()
        shown.page.screenshot(
            path=out,
            clip={
                "x": box["x"] - _MARGIN,
                "y": box["y"] - _MARGIN,
                "width": box["width"] + 2 * _MARGIN,
                "height": box["height"] + 2 * _MARGIN,
            },
        )


if __name__ == "__main__":
    cyclopts.run(picture)
