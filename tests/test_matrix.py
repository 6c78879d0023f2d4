"""The transfer matrix: every adapter on every task, beside the base, in the terminal and a page."""

import pytest
from rich.console import Console
from test_report import SESSION, case, read, values, write

from longseal.evaluation import Evaluation, against_base, case_from
from longseal.evaluation.matrix import matrices
from longseal.report import save_chart
from longseal.report.matrix import matrix_chart
from longseal.terminal import comparison_lines, matrix_tables

RIGHT = {  # of 8 questions, one a context
    "base": {"lines": 1, "needle": 4},
    "lines": {"lines": 8, "needle": 3},
    "needle": {"lines": 1, "needle": 8},
}
TUNED_ON = {"lines": ("lines",), "needle": ("needle",)}


def records(lengths=(512,), names=None):
    """Lines of the log; tasks by other names where those are given."""
    return [
        case(variant, length, n, n < right, task=(names or {}).get(task, task), context=n)
        | {"question": 0}
        for variant, tasks in RIGHT.items()
        for task, right in tasks.items()
        for length in lengths
        for n in range(8)
    ]


def made(rows, tuned_on=TUNED_ON):
    found = Evaluation(tuple(map(case_from, rows)))
    return matrices(found, against_base(found), tuned_on)


def figures(matrix):
    return {
        (variant, column): (cell.accuracy.value, cell.difference, cell.learned)
        for variant, row in zip(matrix.variants, matrix.rows, strict=True)
        for column, cell in zip(matrix.columns, row, strict=True)
        if cell is not None
    }


def printed(table):
    console = Console(width=120, force_terminal=False)
    with console.capture() as text:
        console.print(table)
    return text.get()


def test_every_model_has_a_row_and_every_task_a_column():
    (matrix,) = made(records())
    assert matrix.variants == ("base", "lines", "needle")
    assert matrix.columns == ("lines", "needle")
    assert figures(matrix) == {
        ("base", "lines"): (1 / 8, None, False),
        ("base", "needle"): (4 / 8, None, False),
        ("lines", "lines"): (1.0, 7 / 8, True),
        ("lines", "needle"): (3 / 8, -1 / 8, False),
        ("needle", "lines"): (1 / 8, 0.0, False),
        ("needle", "needle"): (1.0, 4 / 8, True),
    }


def test_the_base_stands_first_whoever_was_asked_first():
    (matrix,) = made(records()[::-1])
    assert matrix.variants == ("base", "needle", "lines")


def test_the_p_of_a_cell_is_that_of_its_paired_test():
    (matrix,) = made(records())
    assert [[cell.p for cell in row] for row in matrix.rows] == [
        [None, None],
        [2 / 2**7, 1.0],
        [1.0, 2 / 2**4],
    ]


def test_each_length_has_a_matrix_of_its_own():
    found = made(records(lengths=(512, 1024)))
    assert [matrix.length for matrix in found] == [512, 1024]
    assert figures(found[0]) == figures(found[1])


def test_tasks_at_lengths_of_their_own_share_one_matrix():
    rows = [row for row in records(lengths=(512, 1024)) if row["length"] == 512]
    others = [row | {"length": 900, "task": "qa"} for row in records() if row["task"] == "lines"]
    (matrix,) = made(rows + others)
    assert matrix.length is None
    assert matrix.columns == ("lines", "needle", "qa")
    rows += [row for row in records(lengths=(1024,)) if row["task"] == "lines"]
    (matrix,) = made(rows)
    assert matrix.columns == ("lines at 512", "needle at 512", "lines at 1,024")


def test_a_task_of_a_family_that_was_tuned_on_is_marked():
    (matrix,) = made(records(names={"needle": "ruler/vt"}), {"needle": ("ruler",)})
    assert {place for place, (_, _, learned) in figures(matrix).items() if learned} == {
        ("needle", "ruler/vt")
    }


def test_means_over_a_family_have_a_column():
    (matrix,) = made(records(names={"needle": "ruler/vt", "lines": "ruler/cwe"}))
    assert figures(matrix)["lines", "ruler, mean of 2"] == (11 / 16, 6 / 16, False)


def test_a_model_that_was_not_asked_leaves_its_cell_empty():
    rows = [r for r in records() if (r["variant"], r["task"]) != ("lines", "needle")]
    (matrix,) = made(rows)
    assert matrix.rows[1][1] is None
    assert matrix_tables([matrix])[0].columns[2]._cells[1] == ""


def test_the_terminal_shows_scores_differences_and_what_was_tuned_on():
    (table,) = matrix_tables(made(records()))
    text = " ".join(printed(table).replace("│", " ").split())
    assert "base 0.12 0.50" in text
    assert "lines 1.00 +0.88* 0.38 -0.12" in text
    assert "needle 0.12 +0.00 1.00 +0.50*" in text
    assert "mean score at 512 tokens" in text


def test_only_real_differences_are_coloured():
    (table,) = matrix_tables(made(records()))
    cells = [cell for column in table.columns for cell in column._cells]
    assert [cell for cell in cells if cell.startswith("[")] == ["[green]1.00 +0.88*[/]"]


def test_lines_name_the_model_and_say_that_p_is_not_corrected():
    found = Evaluation(tuple(map(case_from, records())))
    lines = comparison_lines(against_base(found))
    assert [line.split(":")[0] for line in lines[:3]] == [
        "lines, lines at 512 tokens",
        "lines, all together",
        "needle, all together",
    ]
    assert lines[3].startswith("6 comparisons, 3 not shown that could be chance")
    assert "of twenty without any difference one falls below 0.05" in lines[3]


# In the page


def page(folder, rows):
    config = {
        "model": "my model",
        "task": ["lines", "needle"],
        "adapter": [
            {"name": name, "path": f"runs/{name}/adapter", "tasks": list(tasks)}
            for name, tasks in TUNED_ON.items()
        ],
    }
    return read(write(folder, [SESSION, *rows], config=config))


def test_the_page_shows_the_matrix_first(tmp_path):
    found = page(tmp_path, records())
    assert len(found.specs) == 1  # one length: accuracy over it is no line
    cells = {(r["variant"], r["task"]): r for r in values(found.specs[0])}
    assert {place: (r["value"], r["difference"]) for place, r in cells.items()} == {
        ("base", "lines"): ("13%", 0),
        ("base", "needle"): ("50%", 0),
        ("lines", "lines"): ("100%*", 7 / 8),
        ("lines", "needle"): ("38%", -1 / 8),
        ("needle", "lines"): ("13%", 0),
        ("needle", "needle"): ("100%*", 4 / 8),
    }
    assert {place for place, r in cells.items() if r["learned"]} == {
        ("lines", "lines"),
        ("needle", "needle"),
    }
    assert found.text.index("Every adapter on every task") < found.text.index("Results")
    assert "Framed, with a star: the adapter was tuned on that task." in found.text
    assert cells["lines", "lines"]["says"] == (
        "lines on lines: 100%, 8 of 8 (95% interval 68–100%); +0.88 from the base; p = 0.016; "
        "tuned on this task"
    )


def test_the_headline_names_the_best_adapter(tmp_path):
    text = page(tmp_path / "a", records()).text
    assert (
        "Of 2 adapters, lines does best on 16 questions of 2 tasks: it answered 11 right, "
        "the base 5." in text
    )
    worse = [r for r in records() if r["variant"] == "base" or r["task"] == "needle"]
    worse = [r for r in worse if (r["variant"], r["task"]) != ("base", "lines")]
    worse += [r | {"variant": "needle"} for r in worse if r["variant"] == "lines"]
    text = page(tmp_path / "b", worse).text
    assert "None of 2 adapters beats the base on 8 questions of 1 task: it answered 4" in text


def test_every_adapter_is_compared_with_the_base(tmp_path):
    text = page(tmp_path, records()).text
    assert "Base and lines, by the questions that both were asked: no difference that 16" in text
    assert "Base and needle, by the questions that both were asked: no difference" in text
    assert "lines lines at 512 tokens 8 8 7 0 +0.88" in text
    assert "needle all together 16 16 4 0 +0.25" in text
    assert "each adapter’s last row is the one to go by" in text


def test_several_lengths_have_their_charts_over_length_too(tmp_path):
    found = page(tmp_path, records(lengths=(512, 1024)))
    assert "Every adapter on every task, at 512 tokens" in found.text
    assert "Every adapter on every task, at 1,024 tokens" in found.text
    assert len(found.specs) == 4
    colours = found.specs[2]["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == 3


def test_one_adapter_under_a_name_of_its_own_is_no_matrix(tmp_path):
    rows = [row for row in records() if row["variant"] != "needle"]
    text = page(tmp_path, rows).text
    assert "Every adapter" not in text
    assert "with the adapter lines 11." in text
    assert "base, wrong" in text


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_it_is_saved_as_a_picture(tmp_path, suffix):
    (matrix,) = made(records())
    save_chart(matrix_chart(matrix), tmp_path / f"matrix.{suffix}")
    data = (tmp_path / f"matrix.{suffix}").read_bytes()
    if suffix == "svg":
        for word in ("base", "lines", "needle", "100%*", "38%"):
            assert f">{word}</text>".encode() in data
    else:
        assert data.startswith(b"\x89PNG")
