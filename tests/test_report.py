"""The report says what the run folder holds: true numbers, nothing fetched, nothing let out."""

import json
import re
from html.parser import HTMLParser
from math import sqrt

import pytest
import torch

from longseal.errors import LongsealError
from longseal.evaluation.results import Evaluation, case_from
from longseal.models.fingerprint import Fingerprint
from longseal.models.sites import Site
from longseal.report import (
    accuracy_chart,
    report,
    save_chart,
    scales_chart,
    spread_chart,
    training_chart,
)
from longseal.report.charts import _heads
from longseal.report.contents import Contents, Judged
from longseal.report.wording import duration, headline, percent, short_length
from longseal.scales import Adapter, Scales

SITES = tuple(
    Site(f"model.layers.{n}.self_attn.o_proj", n, n_heads=3, n_kv_heads=1, width=4, input_axis=1)
    for n in range(5)
)
RIGHT = {  # how many of 24 each variant answers right
    512: {"base": 12, "tuned": 24, "folded": 24},
    1024: {"base": 6, "tuned": 23, "folded": 23},
    2048: {"base": 1, "tuned": 21, "folded": 21},
}
ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def case(variant, length, index, right, prediction=None, **fields):
    """A line of the log; `right` is the score, 8 questions a context."""
    said = 1000 + index if right else 5
    return {
        "event": "case",
        "key": f"{variant}/{length}/{index}",
        "variant": variant,
        "task": "lines",
        "group": "",
        "length": length,
        "seed": 7,
        "context": index // 8,
        "question": index % 8,
        "tokens": length - 104,
        "size": length // 28,
        "depth": 0.5,
        "wanted_depth": None,
        "prompt": f"{length}/{index}",
        "expected": [str(1000 + index)],
        "prediction": prediction or f"The <REGISTER_CONTENT> is <{said}>.",
        "thoughts": 0,
        "seconds": 0.5,
        "metric": "last",
        "scores": {"last": float(right), "first": float(right), "contains": float(right)},
    } | fields


def cases(*variants):
    return [
        case(variant, length, index, index < right[variant])
        for variant in variants
        for length, right in RIGHT.items()
        for index in range(24)
    ]


SESSION = {
    "event": "session",
    "command": ["longseal", "run", "my model", "--out", "runs/lines"],
    "versions": {"longseal": "0.1.0", "torch": "2.13.0"},
    "machine": "x86_64, 2 threads, 8 GiB",
    "started": "2026-11-30T02:00:00+00:00",
}
TUNING = [
    {"event": "held-out accuracy", "step": 0, "strength": 0.0, "accuracy": 0.125},
    *({"event": "step", "step": n, "loss": 0.61 * 0.8**n, "tokens": 500 + n} for n in range(1, 17)),
    {"event": "held-out accuracy", "step": 16, "strength": 1.0, "accuracy": 0.875},
    {"event": "held-out loss", "step": 16, "strength": 1.0, "loss": 0.21},
    {"event": "held-out loss", "step": 16, "strength": 0.7, "loss": 0.117},
    {"event": "held-out loss", "step": 8, "strength": 1.0, "loss": 0.3},
    {"event": "held-out accuracy", "step": 16, "strength": 0.7, "accuracy": 1.0},
]
COST = [
    {"event": "stage", "stage": "evaluate base", "seconds": 61.2, "peak_memory": 2_100_000_000},
    {"event": "stage", "stage": "tune", "seconds": 40.0, "peak_memory": 2_300_000_000},
    {"event": "stage", "stage": "tune", "seconds": 33.5, "peak_memory": 2_250_000_000},
    {"event": "fold", "rounding": 0.0, "logit_difference": 2.1e-05},
]


def scales(kind="channel"):
    generator = torch.Generator().manual_seed(0)
    width = SITES[0].width if kind == "channel" else 1
    return Scales(
        kind,
        SITES,
        {site.name: torch.randn(site.n_heads, width, generator=generator) * 0.1 for site in SITES},
    )


def write(folder, records, adapter=None, config=None, more=None):
    """A run folder; `more` goes into the adapter's record."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "results.jsonl").write_text(lines, "utf-8")
    if config:
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    if adapter is not None:
        step = 0 if adapter.unchanged else 16
        record = {
            "task": "lines",
            "settings": {"length": 2048, "seed": 7},
            "steps": 16,
            "chosen": {"step": step, "strength": 0.7, "accuracy": 1.0, "loss": 0.117},
            "held_out_base": 1.0 if adapter.unchanged else 0.125,
            "stopped": None,
            "seconds": 73.5,
            "skipped_layers": {"linear_attention: no softmax over positions": "0-2, 4"},
        } | (more or {})
        made = Adapter(
            adapter, "my model", Fingerprint("torch.float32", {"w": [1.0, 2.0, 3.0, 4.0]}), record
        )
        made.save(folder / "adapter")
    return folder


@pytest.fixture
def whole(tmp_path):
    records = [SESSION, *cases("base"), *TUNING, *cases("tuned"), *COST, *cases("folded")]
    config = {"model": "my model", "dtype": "float32", "task": "lines", "samples": 24, "seed": 7}
    return write(tmp_path / "run", records, scales(), config)


class Reader(HTMLParser):
    """The page as a browser takes it: its elements, its text, and the specs of its charts."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.words, self.specs, self.inside = [], [], [], None
        self.feed(page)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = self.elements[-1] if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.words.append(" ")
        self.inside = None

    def handle_data(self, data):
        if self.inside is None:
            self.words.append(data)
        elif self.inside[1].get("class") == "spec":
            self.specs.append(json.loads(data))


def read(folder):
    return Reader(report(folder).read_text("utf-8"))


def wilson(right, total):
    z = 1.959963984540054
    share, spread = right / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * sqrt(share * (1 - share) / total + spread / total / 4)
    return f"{100 * (centre - half):.0f}–{100 * (centre + half):.0f}%"


def values(spec):
    return [row for rows in spec["datasets"].values() for row in rows]


def test_headline_says_what_happened(whole):
    assert (
        "At 2,048 tokens the base answered 1 of 24 right; with the scales folded in 21 of 24."
        in read(whole).text
    )


def test_table_holds_every_accuracy_with_its_interval(whole):
    text = read(whole).text
    for length, variants in RIGHT.items():
        cells = " ".join(
            f"{100 * right / 24:.0f}% {right} of 24 {wilson(right, 24)}"
            for right in variants.values()
        )
        assert f"{length:,} {cells}" in text


def test_changes_for_the_worse_are_counted_and_shown(tmp_path):
    records = [case("base", 512, 0, True), case("folded", 512, 0, False, "no idea")]
    text = read(write(tmp_path, records)).text
    assert "too few to say: 1 of 1 question went from right to wrong" in text
    assert "folded, wrong no idea" in text


def test_page_says_whether_the_difference_is_real(whole):
    text = read(whole).text
    assert (
        "folded is better: 49 of 72 questions on 9 contexts went from wrong to right, none the "
        "other way; so much by chance alone: p = 0.0078" in text
    )
    assert "lines at 512 tokens 24 3 12 0 +0.50 -0.63 to +1.00 0.500" in text
    assert "all together 72 9 49 0 +0.68 +0.39 to +0.94 0.008" in text


def several(variant, gain):
    """Two tasks of a family, one of which gives parts of a point, one context a question."""
    return [
        case(variant, 512, n, right, task=f"ruler/{task}", context=n, question=0)
        for task, rights in (("vt", [0, 0.25, 0.5, 0.5]), ("qa_1", [0, 1, 1, 1]))
        for n, right in enumerate([min(1, right + gain) for right in rights] * 2)
    ]


def test_several_tasks_have_rows_charts_and_a_mean_of_their_own(tmp_path):
    records = [SESSION, *several("base", 0), *several("folded", 0.5)]
    records.append({"event": "excluded", "variant": "base", "excluded": {"ruler/qa_1": 3}})
    page = read(write(tmp_path, records, config={"task": ["ruler"]}))
    assert "task ruler On 16 questions of 2 tasks the base scored 0.53 on average; " in page.text
    assert "with the scales folded in 0.84." in page.text
    assert re.search(r"ruler/vt 512 0\.31 mean of 8 0\.1\d–0\.\d\d 0\.81 mean of 8", page.text)
    assert re.search(r"ruler, mean of 2 512 0\.5\d mean of 16 .* 0\.8\d mean of 16", page.text)
    assert "Left out as longer than the model’s window: 3 questions of ruler/qa_1." in page.text
    assert "base, wrong" in page.text
    assert "folded, score 0.50" in page.text
    means, vt, qa = page.specs
    assert {r["accuracy"] for r in values(vt)} == {0.3125, 0.8125}
    assert len(values(means)) == len(values(qa)) == 2


def test_the_tasks_of_a_run_are_named_whether_one_or_many(tmp_path):
    for number, (task, words) in enumerate(
        [("lines", "task lines"), (["lines", "ruler"], "task lines, ruler"), (None, "task lines")]
    ):
        config = {"task": task} if task else None
        text = read(write(tmp_path / str(number), cases("base"), config=config)).text
        assert f"{words} At 2,048" in text


def test_groups_of_a_task_stand_side_by_side_in_its_chart(tmp_path):
    records = [
        case("base", length, n, n % 2, task="triviaqa", group=group)
        for group, length in (("8k+", 11_000), ("0-4k", 3_900))
        for n in range(4)
    ]
    page = read(write(tmp_path, records))
    assert "triviaqa, 0-4k 3,900 50% 2 of 4" in page.text
    (spec,) = page.specs
    axes = [layer["encoding"]["x"] for layer in spec["layer"]]
    assert axes[0]["sort"] == ["0-4k", "8k+"]
    assert axes[0]["title"] == "group"


def test_answers_at_several_depths_make_a_heat_map(tmp_path):
    pytest.importorskip("longseal.report.heatmap")
    records = [
        case(variant, length, n, n % 2 or variant == "folded", task="needle", wanted_depth=n / 3)
        for variant in ("base", "folded")
        for length in (512, 1024)
        for n in range(4)
    ]
    page = read(write(tmp_path, records))
    assert "needle: accuracy by length and depth" in page.text
    cells = [row["value"] for row in values(page.specs[1]) if "value" in row]
    assert sorted(cells) == [0] * 4 + [1] * 12
    assert len(read(write(tmp_path / "one", [case("base", 512, 0, 1, wanted_depth=0)])).specs) == 1


def test_a_question_that_was_asked_again_counts_once(tmp_path):
    stale = [case("base", 512, n, False, key="stale") for n in range(8)]
    text = read(write(tmp_path, [*stale, *(case("base", 512, n, True) for n in range(8))])).text
    assert "At 512 tokens the base answered 8 of 8 right." in text


def test_page_shows_choice_fold_cost_and_how_to_repeat(whole):
    text = read(whole).text
    for part in (
        "step 16 of 16, strength 0.7",
        "Held-out accuracy 100%, the base 13%",
        "step 16 (chosen) 0.7 100% 0.117",
        "differ by at most 2.1e-05",
        "evaluate base 61.2 s 2.10 GB",
        "tune 73.5 s 2.30 GB",
        "all 2 min 15 s 2.30 GB",
        "longseal run 'my model' --out runs/lines",
        "longseal 0.1.0, torch 2.13.0",
        "x86_64, 2 threads, 8 GiB",
        "2026-11-30T02:00:00+00:00",
        "Seed 7",
        '"samples": 24',
        "base, wrong The <REGISTER_CONTENT> is <5>.",
    ):
        assert part in text, part


def test_charts_hold_the_true_numbers(whole):
    accuracy, means, spreads, training = read(whole).specs
    found = {(r["variant"], r["length"]): r["accuracy"] for r in values(accuracy)}
    assert found == {
        (variant, short_length(length)): right / 24
        for length, variants in RIGHT.items()
        for variant, right in variants.items()
    }
    heads = {(r["layer"], r["head"]): r for r in values(means)}
    assert len(heads) == 15
    for site in SITES:
        expected = 1 + scales().deltas[site.name]
        for head in range(3):
            row = heads[site.layer, head]
            assert row["mean"] == pytest.approx(expected[head].mean().item(), abs=1e-6)
            assert row["spread"] == pytest.approx(expected[head].std(correction=0).item(), abs=1e-6)
            assert row["says"].startswith(f"L{site.layer}H{head}, mean scale {row['mean']:.3f}")
    assert values(spreads) == values(means)
    losses = {(r["kind"], r["step"]) for r in values(training) if "loss" in r}
    assert losses >= {("training", 1), ("training", 16), ("held out", 8), ("held out", 16)}
    labels = {r["step"]: r["label"] for r in values(training) if "label" in r}
    assert labels == {0: "13% right", 16: "× 0.7: 100% right\n88% right"}


def test_a_layer_with_two_attentions_counts_its_heads_on():
    sites = [Site(f"layers.0.attn.{i}.o", 0, 3, 3, 4, 1) for i in range(2)]
    random = torch.Generator().manual_seed(0)
    deltas = {site.name: torch.randn(3, 1, generator=random) for site in sites}
    rows = _heads(Scales("head", tuple(sites), deltas))
    assert [(row["layer"], row["head"]) for row in rows] == [(0, head) for head in range(6)]


def test_layers_without_heads_are_named(whole):
    assert "layers 0-2, 4: linear_attention" in report(whole).read_text("utf-8")


def test_page_fetches_nothing(whole):
    page = report(whole).read_text("utf-8")
    for tag, attributes in Reader(page).elements:
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys(), tag
    assert "@import" not in page
    assert "url(" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "default-src 'none'" in page
    assert page.count("window.vegaEmbed=") == 1
    assert page.count("vegaEmbed(spec.") == 1
    assert "editor: false" in page


def test_predictions_cannot_break_out(tmp_path):
    records = [
        SESSION | {"machine": ATTACK, "command": ["longseal", ATTACK]},
        case("base", 512, 0, False, ATTACK),
        case("folded", 512, 0, True, ATTACK),
        case(ATTACK, 512, 0, True),  # goes into a chart's spec
        {"event": "stage", "stage": ATTACK, "seconds": 1.0},
    ]
    clean = read(write(tmp_path / "clean", [*cases("base", "folded"), SESSION]))
    page = read(write(tmp_path / "run", records, config={"model": ATTACK}))
    assert [tag for tag, _ in page.elements if tag == "img"] == []
    scripts = [[tag for tag, _ in p.elements].count("script") for p in (page, clean)]
    assert scripts[0] == scripts[1]
    assert "alert(1)" in page.text
    assert any(row["variant"] == ATTACK for row in values(page.specs[0]))


def test_only_an_evaluation(tmp_path):
    page = read(write(tmp_path, [SESSION, *cases("base")]))
    assert "At 2,048 tokens the base answered 1 of 24 right." in page.text
    assert len(page.specs) == 1
    for absent in ("The choice", "The fold", "Cost", "before and after"):
        assert absent not in page.text


def test_only_a_tuning(tmp_path):
    page = read(write(tmp_path, TUNING, scales("head")))
    assert "Held-out accuracy at 2,048 tokens went from 13% to 100%." in page.text
    assert len(page.specs) == 2
    assert values(page.specs[0])[0]["says"].startswith("L0H0, scale ")


def test_an_interrupted_run(tmp_path):
    text = read(write(tmp_path / "a", [*cases("base"), *TUNING[:5], *cases("tuned")[:30]])).text
    assert (
        "At 1,024 tokens the base answered 6 of 24 right; with the adapter attached 6 of 6." in text
    )
    assert "2,048 4% 1 of 24" in text
    assert "not asked" in text
    assert "4 steps; nothing is chosen yet" in read(write(tmp_path / "b", TUNING[:5])).text
    with (tmp_path / "a" / "results.jsonl").open("a") as file:
        file.write('{"event": "ca')
    report(tmp_path / "a")


def test_a_resumed_run_shows_every_session(tmp_path):
    later = SESSION | {"started": "2026-12-01T02:00:00+00:00", "command": ["longseal", "--resume"]}
    text = read(write(tmp_path, [SESSION, later, *cases("base")])).text
    assert "Started 2026-11-30T02:00:00+00:00" in text
    assert "Resumed 2026-12-01T02:00:00+00:00 longseal --resume" in text


def test_unchanged_is_said(tmp_path):
    records = [case(v, 512, n, True) for v in ("base", "folded") for n in range(8)]
    page = read(write(tmp_path, [*records, TUNING[0]], Scales.zeros("head", SITES)))
    assert (
        "The base answered every held-out question right, so it was left unchanged. "
        "At 512 tokens the base answered 8 of 8 right." in page.text
    )
    assert "unchanged: the base was already as good" in page.text
    assert len(page.specs) == 1


def test_bad_folders_are_refused_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "results.jsonl").write_text(
        '{"event": "case", "key": "0", "variant": "base"}\n'
    )
    older = {k: v for k, v in case("base", 512, 0, True).items() if k != "key"}
    changed = [case("base", 512, 0, True), case("folded", 512, 0, True, prompt="another")]
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "results.jsonl").write_text("not JSON\n")
    for folder, words in (
        (tmp_path / "absent", "does not exist"),
        (tmp_path / "empty", "holds no results.jsonl"),
        (write(tmp_path / "called", [SESSION]), "holds no cases"),
        (tmp_path / "torn", "is damaged"),
        (tmp_path / "none", "is damaged"),
        (write(tmp_path / "older", [older]), "older longseal"),
        (write(tmp_path / "changed", changed), "asked different prompts"),
    ):
        with pytest.raises(LongsealError, match=words) as caught:
            report(folder)
        assert "\n" not in str(caught.value)
        assert not (folder / "report.html").exists()


def charts():
    found = tuple(map(case_from, cases("base", "tuned", "folded")))
    judged = [Judged(0, 0.0, 0.125), Judged(8, 1.0, None, 0.3), Judged(16, 1.0, 1.0, 0.1)]
    return {
        "accuracy": accuracy_chart(Evaluation(found).accuracy()),
        "scales": scales_chart(scales("head")),
        "spread": spread_chart(scales()),
        "training": training_chart([r for r in TUNING if r["event"] == "step"], judged),
    }


@pytest.mark.parametrize("name", ["accuracy", "scales", "spread", "training"])
def test_charts_are_saved_as_png_svg_and_html(tmp_path, name):
    chart = charts()[name]
    for suffix in ("png", "svg", "html"):
        save_chart(chart, tmp_path / f"{name}.{suffix}")
    png = (tmp_path / f"{name}.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(png[16:20], "big") > 1200
    svg = (tmp_path / f"{name}.svg").read_text("utf-8")
    assert svg.startswith("<svg")
    assert {"accuracy": "folded", "scales": "layer", "spread": "head", "training": "step"}[
        name
    ] in svg
    page = (tmp_path / f"{name}.html").read_text("utf-8")
    assert not re.search(r"<script[^>]*src=|<link", page)
    with pytest.raises(LongsealError, match="known format"):
        save_chart(chart, tmp_path / f"{name}.gif")


def test_numbers_in_words(whole):
    assert [percent(x) for x in (0, 0.125, 0.875, 1)] == ["0%", "13%", "88%", "100%"]
    assert [short_length(n) for n in (512, 1024, 31744, 8000)] == ["512", "1k", "31k", "8,000"]
    assert [duration(s) for s in (61.24, 754, 7300)] == ["61.2 s", "12 min 34 s", "2 h 1 min"]
    assert headline(Contents.read(whole)).startswith("At 2,048 tokens")
