"""What an evaluation keeps and says of its answers: true means, and honest intervals."""

import json
import warnings
from dataclasses import asdict
from math import sqrt

import pytest
from scipy.stats import norm

from longseal.errors import LongsealError
from longseal.evaluation.results import Case, Evaluation, case_from, case_key
from longseal.terminal import accuracy_table

KEY = ("model", "adapter", "lines", {"budget": 100, "engine": "transformers"}, 7, "5eed")


def case(value=1.0, variant="base", task="lines", length=600, context=0, question=0, **fields):
    """A case as evaluations keep it, with this score."""
    return Case(
        **{
            "key": "",
            "variant": variant,
            "task": task,
            "group": "",
            "length": length,
            "seed": 0,
            "context": context,
            "question": question,
            "tokens": length - 100,
            "size": 3,
            "depth": None,
            "wanted_depth": None,
            "prompt": f"{task}/{length}/{context}/{question}",
            "expected": ("1", "2"),
            "prediction": "1",
            "thoughts": 0,
            "seconds": 0.5,
            "metric": "all",
            "scores": {"any": 1.0, "all": value},
        }
        | fields
    )


def evaluation(*values, **fields):
    return Evaluation(tuple(case(v, question=i, **fields) for i, v in enumerate(values)))


def test_a_case_is_read_as_it_was_written():
    written = case(0.5, depth=0.25, group="0-4k")
    assert case_from(json.loads(json.dumps({"event": "case", **asdict(written)}))) == written


def test_a_line_of_an_older_longseal_is_refused_in_one_line():
    older = {"event": "case", "variant": "base", "expected": "1", "scores": {"last": True}}
    with pytest.raises(LongsealError, match=r"older longseal.*--overwrite") as caught:
        case_from(older)
    assert "\n" not in str(caught.value)


def test_a_key_changes_with_all_that_an_answer_depends_on():
    others = ("m", "a", "vt", {"budget": 99, "engine": "transformers"}, 8, "0")
    changed = [case_key(*KEY[:i], other, *KEY[i + 1 :]) for i, other in enumerate(others)]
    assert len({case_key(*KEY), *changed}) == 1 + len(KEY)


def test_a_key_does_not_change_with_the_order_of_settings():
    turned = dict(reversed(KEY[3].items()))
    assert case_key(*KEY[:3], turned, *KEY[4:]) == case_key(*KEY)


@pytest.mark.parametrize(
    ("right", "total"), [(0, 24), (1, 24), (7, 24), (12, 24), (24, 24), (1, 1), (0, 1), (431, 500)]
)
def test_the_interval_of_right_and_wrong_is_wilson_s(right, total):
    (found,) = evaluation(*[1.0] * right, *[0.0] * (total - right)).accuracy()
    z, share = norm.ppf(0.975), right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    reach /= 1 + z * z / total
    assert (found.correct, found.total, found.value) == (right, total, share)
    assert found.low == pytest.approx(middle - reach, abs=1e-9)
    assert found.high == pytest.approx(middle + reach, abs=1e-9)


def test_the_interval_of_parts_of_a_point_is_that_of_their_mean():
    values = [i % 11 / 10 for i in range(400)]
    (found,) = evaluation(*values).accuracy()
    mean = sum(values) / 400
    error = 1.96 * sqrt(sum((v - mean) ** 2 for v in values) / 400 / 400)
    assert found.value == pytest.approx(mean)
    assert found.correct is None
    assert found.low == pytest.approx(mean - error, abs=0.005)
    assert found.high == pytest.approx(mean + error, abs=0.005)
    assert evaluation(*values).accuracy() == (found,)  # its random draws have a seed


@pytest.mark.parametrize("values", [[0.3], [0.3] * 20, [0.0, 0.5], [1.0] * 9 + [0.5]])
def test_an_interval_of_few_or_equal_answers_is_wide_and_silent(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = evaluation(*values).accuracy()
    assert 0 <= found.low < found.value < found.high <= 1
    assert len(values) > 1 or (found.low, found.high) == (0, 1)


def test_accuracy_is_told_by_variant_task_group_and_length():
    cases = (
        *evaluation(1, 0, 0, 0).cases,
        *evaluation(1, 1, 0, length=700).cases,
        *evaluation(1, 1, variant="tuned").cases,
        *evaluation(1, 0.5, task="vt").cases,
        *evaluation(0, 0, task="vt", group="8k+").cases,
    )
    told = [
        (a.variant, a.task, a.group, a.length, a.value, a.total, a.correct)
        for a in Evaluation(cases).accuracy()
    ]
    assert told == [
        ("base", "lines", "", 600, 0.25, 4, 1),
        ("base", "lines", "", 700, 2 / 3, 3, 2),
        ("tuned", "lines", "", 600, 1.0, 2, 2),
        ("base", "vt", "", 600, 0.75, 2, None),
        ("base", "vt", "8k+", 600, 0.0, 2, None),  # the task gives parts of a point
    ]


def test_the_mean_of_a_family_weighs_its_tasks_alike():
    cases = (
        *evaluation(1, 1, 1, 1, 1, 1, task="ruler/vt").cases,
        *evaluation(0.5, 0, task="ruler/cwe").cases,
        *evaluation(1, task="lines").cases,
    )
    (mean,) = Evaluation(cases).mean()
    assert (mean.task, mean.value, mean.total) == ("ruler, mean of 2", 0.625, 8)
    vt, cwe, _ = Evaluation(cases).accuracy()
    narrow = max((vt.high - vt.low), (cwe.high - cwe.low)) / 2
    assert 0 <= mean.low < 0.625 < mean.high <= 1
    assert narrow < mean.high - mean.low < (vt.high - vt.low + cwe.high - cwe.low) / 2


def test_a_mean_of_fewer_tasks_than_others_were_asked_is_not_told():
    whole = [case(task=f"ruler/{task}") for task in ("vt", "cwe", "fwe")]
    interrupted = [case(task=f"ruler/{task}", variant="tuned") for task in ("vt", "cwe")]
    assert [a.variant for a in Evaluation((*whole, *interrupted)).mean()] == ["base"]


def test_no_mean_without_several_tasks():
    assert evaluation(1, 0, task="ruler/vt").mean() == ()


def test_answers_are_told_by_the_depth_that_was_wanted():
    cases = [case(v, wanted_depth=d, depth=d + 0.01) for v, d in ((1, 0), (0, 0), (0.5, 0.5))]
    found = Evaluation((*cases, case())).by_depth()
    assert [(row.depth, row.value, row.total) for row in found] == [(0, 0.5, 2), (0.5, 0.5, 1)]
    assert evaluation(1).by_depth() == ()


def shown(accuracies):
    table = accuracy_table(accuracies)
    names = [str(column.header) for column in table.columns]
    return names, list(zip(*(column.cells for column in table.columns), strict=True))


def test_the_table_names_the_task_where_there_are_several():
    names, rows = shown(evaluation(1, 0, length=2048).accuracy())
    assert names == ["length", "questions", "base"]
    assert rows == [("2,048", "2", "0.50 (0.09-0.91)")]
    cases = (*evaluation(1, 0).cases, *evaluation(1, task="ruler/vt", variant="tuned").cases)
    names, rows = shown(Evaluation(cases).accuracy())
    assert names == ["task", "length", "questions", "base", "tuned"]
    assert rows[1] == ("ruler/vt", "600", "1", "", "1.00 (0.21-1.00)")
