"""The heat map shows every cell's mean where its length and depth say."""

from longseal.evaluation.results import AtDepth
from longseal.report import save_chart
from longseal.report.heatmap import heatmap_chart


def row(variant, length, depth, value, total=1):
    return AtDepth(variant, "needle", "", length, depth, value, total)


ROWS = [
    row(variant, length, depth, 1.0 if variant == "tuned" else depth / 2)
    for variant in ("base", "tuned")
    for length in (2048, 1000)
    for depth in (1.0, 0.0, 0.3)
]


def drawn(rows):
    """The squares, the order of columns and that of rows."""
    chart = heatmap_chart(rows).to_dict()
    squares = chart["layer"][0]
    encoding = squares["encoding"]
    return chart["datasets"][squares["data"]["name"]], encoding["x"]["sort"], encoding["y"]["sort"]


def test_a_panel_a_variant_lengths_from_left_to_right_depths_from_top_to_bottom():
    squares, columns, depths = drawn(ROWS)
    assert columns == ["base|1,000", "base|2k", "tuned|", "tuned|1,000", "tuned|2k"]
    assert depths == ["0%", "30%", "100%"]
    assert len(squares) == len(ROWS)
    found = {(square["column"], square["depth"]): square["value"] for square in squares}
    assert found["base|2k", "30%"] == 0.15
    assert found["tuned|1,000", "100%"] == 1


def test_a_cell_says_its_mean_and_of_how_many_answers():
    (square,) = drawn([row("base", 1024, 0.5, 0.5, total=4)])[0]
    assert square["value"] == 0.5
    assert square["says"] == "base at 1,024 tokens, depth 50%: 50% found (4 asked)"


def test_colours_go_from_nothing_found_to_all():
    scale = heatmap_chart(ROWS).to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert (scale["domain"][0], scale["domain"][-1]) == (0, 1)
    assert len(set(scale["range"])) == len(scale["domain"])


def test_it_is_saved_as_a_picture(tmp_path):
    save_chart(heatmap_chart(ROWS), tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text("utf-8")
    for word in ("base", "tuned", "1,000", "2k", "30%"):
        assert f">{word}</text>" in text
