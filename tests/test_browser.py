"""The report and its charts in a real browser: quiet, drawn, readable; hovering names the head."""

import random
import re
from itertools import combinations

import altair
import browser
import pytest
import test_matrix
import test_report
from browser import PHONE, WIDE, marks, opened, reachable, words

from longseal.probing import (
    Answered,
    Case,
    Head,
    Influence,
    Look,
    Looks,
    Probe,
    Quadrants,
    Relation,
    Rescaled,
    Trust,
    Tuned,
)
from longseal.probing.direct import Contribution, DirectEffect
from longseal.report import report, save_chart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.CHROMIUM is None, reason=browser.MISSING),
]

LENGTHS = (512, 1024)
HEADS = [Head(layer, head) for layer in range(12) for head in range(6)]
TIMES = 5  # that the pointer is put on a chart


def influence(name, head, length, method, change):
    exact = method == "exact"
    low, high = (change - 0.2, change + 0.2) if exact else (None, None)
    accuracy = 0.25 if exact else None
    return Influence(
        name, head.layer, head.head, length, method, change, low, high, accuracy, questions=8
    )


def effect(draw):
    names = [f"L{n} MLP" for n in range(12)] + [str(head) for head in HEADS]
    parts = tuple(Contribution(name, 0, None, draw.gauss(0, 1)) for name in names)
    return DirectEffect(7, 8, sum(part.value for part in parts), parts)


def heads():
    """An audit of all heads at two lengths, with all that can be asked for beside it."""
    draw = random.Random(0)
    change = {(n, head): draw.gauss(0, 1) ** 3 for head in HEADS for n in LENGTHS}
    audited = draw.sample(HEADS, 20)
    quadrants = {name: [] for name in ("Q1", "Q2", "Q3", "Q4")}
    for head in HEADS:
        middle, long = (change[n, head] > 0 for n in LENGTHS)
        quadrants["Q1" if middle and long else "Q4" if middle else "Q2" if long else "Q3"].append(
            head
        )
    answered = tuple(Answered(n, -9.5, 0.25, 8, (0.05, 0.5)) for n in LENGTHS)
    return Probe(
        base=answered,
        influences=(
            *(influence(str(h), h, n, "gradient", c * 0.8) for (n, h), c in change.items()),
            *(influence(str(h), h, n, "exact", change[n, h]) for h in audited for n in LENGTHS),
        ),
        trust=tuple(
            Trust(n, among, count, 0.84, (0.69, 0.92), 0.78, (0.61, 0.89))
            for n in LENGTHS
            for among, count in (("audited", 20), ("random", 8))
        ),
        looks=tuple(
            Looks(
                n, tuple(Look(h, draw.uniform(0, n), draw.random(), draw.random()) for h in HEADS)
            )
            for n in LENGTHS
        ),
        relations=(Relation(1024, "influence", "scale", 72, -0.4, (-0.6, -0.2)),),
        tuned=Tuned(
            {str(head): draw.gauss(1, 0.1) for head in HEADS},
            answered,
            Case(
                512,
                "Which?",
                "It is 17.",
                "It is 71.",
                "It is ",
                "17",
                "71",
                False,
                *map(effect, [draw] * 2),
            ),
        ),
        quadrants=Quadrants(
            *LENGTHS,
            {name: tuple(found) for name, found in quadrants.items()},
            tuple(Rescaled(name, each) for name in ("base", "Q1:0.9,Q3:1.1") for each in answered),
        ),
        notes=("what its user should know",),
    )


def channels():
    draw = random.Random(0)
    head = Head(1, 18)
    return Probe(
        base=(Answered(512, -9.5, 0.25, 8),),
        influences=tuple(
            influence(f"{head}C{n}", head, 512, "exact", draw.gauss(0, 0.1)) for n in range(128)
        ),
    )


def probed(folder, probe):
    return test_report.write(folder, [test_report.SESSION, {"event": "probe", **probe.to_json()}])


def tuned(folder):
    """Accuracy by length, the scales, the training."""
    variants = [test_report.cases(variant) for variant in ("base", "tuned", "folded")]
    records = [case for cases in variants for case in cases]
    return test_report.write(folder, records + test_report.TUNING, test_report.scales())


def adapters(folder):
    """The matrix of every adapter on every task."""
    config = {"adapter": [{"name": n, "tasks": t} for n, t in test_matrix.TUNED_ON.items()]}
    return test_report.write(folder, test_matrix.records(LENGTHS), config=config)


def depths(folder):
    """Needles at several depths."""
    records = [
        test_report.case(variant, n, i, i % 2, task="needle", wanted_depth=i / 3)
        for variant in ("base", "folded")
        for n in LENGTHS
        for i in range(4)
    ]
    return test_report.write(folder, records)


RUNS = {
    "heads": lambda folder: probed(folder, heads()),
    "channels": lambda folder: probed(folder, channels()),
    "tuned": tuned,
    "adapters": adapters,
    "depths": depths,
}
every_run = pytest.mark.parametrize("run", RUNS)


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The reports, by run."""
    return {name: report(made(tmp_path_factory.mktemp(name))) for name, made in RUNS.items()}


def specs(page):
    return test_report.Reader(page.read_text("utf-8")).specs


def faults(specs, shown):
    """All in the console, data that no mark shows, and figures that are none."""
    found = list(shown.said)
    for spec, chart in zip(specs, shown.charts, strict=True):
        said = [box.says for box in (*marks(chart), *words(chart))]
        wanted = {row["says"] for row in test_report.values(spec) if "says" in row}
        assert wanted
        found += [each for each in wanted if not any(f"says: {each}" in text for text in said)]
        found += [text for text in said if re.search(r"undefined|NaN|null", text)]
    return found


def unnamed(shown):
    """Marks that do not say what they are when the pointer is on them."""
    found = []
    shown.in_view()
    for chart in shown.charts:
        named = [mark for mark in reachable(chart) if "says: " in mark.says]
        assert named
        for mark in named[:: -(-len(named) // TIMES)]:
            said = shown.hovered(mark.middle)
            found += [mark.says] * (not said or not mark.says.endswith(f"says: {said}"))
    return found


@every_run
def test_every_chart_of_a_report_is_drawn_and_says_what_its_marks_are(chromium, pages, run):
    with opened(chromium, pages[run]) as shown:
        assert faults(specs(pages[run]), shown) == []
        assert unnamed(shown) == []
        assert shown.said == []
        assert shown.fetched == [pages[run].as_uri()]


@every_run
def test_so_does_every_chart_alone(chromium, pages, run, tmp_path):
    for number, spec in enumerate(specs(pages[run])):
        page = tmp_path / f"{number}.html"
        save_chart(altair.Chart.from_dict(spec), page)
        with opened(chromium, page) as shown:
            assert faults([spec], shown) == []
            assert unnamed(shown) == []
            assert shown.said == []
            assert shown.fetched == [page.as_uri()]


def test_hovering_the_map_of_heads_names_the_head(chromium, pages):
    with opened(chromium, pages["heads"]) as shown:
        shown.in_view()
        found = reachable(shown.charts[0])
        assert len(found) == len(HEADS)
        for mark in found[::7]:
            layer, head = re.match(r"layer: (\d+); head: (\d+);", mark.says).groups()
            assert shown.hovered(mark.middle).startswith(f"L{layer}H{head}: ")


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ('"mark": {"type": "rect"}', '"mark": {"type": "wrecked"}'),
        ('"field": "layer"', '"field": "gone"'),
        ('"field": "says"', '"field": "gone"'),
        ('"interpolate": "rgb"', '"type": "none"'),
        ("vegaEmbed(spec.", "void (spec."),
    ],
)
def test_a_chart_that_is_broken_is_noticed(chromium, pages, tmp_path, whole, broken, monkeypatch):
    monkeypatch.setattr(browser, "PATIENCE", 20)
    text = pages["heads"].read_text("utf-8")
    assert whole in text
    page = tmp_path / "broken.html"
    page.write_text(text.replace(whole, broken), "utf-8")
    with opened(chromium, page) as shown:
        assert faults(specs(page), shown) != []


@pytest.mark.parametrize("width", [WIDE, PHONE])
@every_run
def test_every_word_of_a_chart_can_be_read(chromium, pages, run, width):
    """None is cut short, beyond the chart's edge, on another one, or under the chart's menu."""
    with opened(chromium, pages[run], width) as shown:
        assert shown.page.evaluate("document.documentElement.scrollWidth") == width
        for chart in shown.charts:
            (frame,) = browser.boxes(chart.locator("svg.marks"))
            found = words(chart)
            assert [word.says for word in found if word.says.endswith("…")] == []
            assert [word.says for word in found if not word.inside(frame)] == []
            found += browser.boxes(chart.locator("summary"))
            assert [(a.says, b.says) for a, b in combinations(found, 2) if a.on(b)] == []


def test_tooltips_stand_whole_on_a_phone(chromium, pages):
    with opened(chromium, pages["heads"], PHONE) as shown:
        shown.in_view()
        for mark in reachable(shown.charts[0])[::7]:
            shown.hovered(mark.middle)
            (tooltip,) = browser.boxes(shown.page.locator("#vg-tooltip-element"))
            assert 0 <= tooltip.left < tooltip.right <= PHONE
