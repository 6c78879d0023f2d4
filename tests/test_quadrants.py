"""Heads by quadrant, and quadrants rescaled without training."""

import pytest
import tiny

from longseal.errors import LongsealError
from longseal.models.sites import Head
from longseal.probing import probe
from longseal.probing.quadrants import adapter_of, part
from longseal.probing.result import Answered, Influence, Quadrants, Rescaled
from longseal.scales import Adapter

SMALL = {"lengths": (600, 800), "samples": 3, "questions": 2}


def influences(**changes):
    return [
        Influence(name, int(name[1]), int(name[3]), length, "exact", change, None, None, None, 1)
        for name, pair in changes.items()
        for length, change in zip((100, 400), pair, strict=True)
    ]


def test_heads_are_parted_by_both_changes():
    found = part(influences(L0H0=(1, 2), L0H1=(-1, 2), L1H0=(-1, -2), L1H1=(1, -2), L1H2=(3, 1)))
    assert found.heads == {
        "Q1": (Head(0, 0), Head(1, 2)),
        "Q2": (Head(0, 1),),
        "Q3": (Head(1, 0),),
        "Q4": (Head(1, 1),),
    }
    assert (found.middle, found.long) == (100, 400)


def test_the_best_is_by_accuracy_then_log_probability():
    rows = [("base", 0.5, -3.0), ("Q1:0.9", 0.5, -2.0), ("Q3:0.9", 0.5, -4.0)]
    found = Quadrants(1, 2, {}, tuple(Rescaled(n, Answered(1, p, a, 4)) for n, a, p in rows))
    assert found.best == "Q1:0.9"
    more = (*found.rescaled, Rescaled("Q1:0.8", Answered(1, -9.0, 0.6, 4)))
    assert Quadrants(1, 2, {}, more).best == "Q1:0.8"


def test_rescaled_answers_are_those_of_the_saved_adapter(loaded, tmp_path):
    model = loaded("llama")
    choice = "Q1:0.5,Q3:1.6"
    found = probe(
        model, tiny.Chance(), method="gradient", quadrants=True, rescale=(choice,), **SMALL
    ).quadrants
    assert sum(map(len, found.heads.values())) == 18
    assert {each.name for each in found.rescaled} == {"base", choice}
    adapter_of(choice, found, model, {}).save(tmp_path / "adapter")
    adapter = Adapter.load(tmp_path / "adapter")
    with adapter.attached(model):
        again = probe(
            model, tiny.Chance(), method="gradient", quadrants=True, rescale=(), **SMALL
        ).quadrants
    base = {each.answered.length: each.answered for each in again.rescaled}
    for each in found.rescaled:
        mine, same = each.answered, base[each.answered.length]
        if each.name == choice:
            assert mine.accuracy == pytest.approx(same.accuracy)
            assert mine.interval == pytest.approx(same.interval)
            assert mine.log_probability == pytest.approx(same.log_probability, rel=1e-5)
        else:
            assert mine.log_probability != pytest.approx(same.log_probability)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lengths": (600,)}, "two lengths"),
        ({"rescale": ("Q5:0.9",)}, "Q1:0.9"),
        ({"rescale": ("Q1=0.9",)}, "Q1:0.9"),
        ({"prune": ("L1",)}, "single heads"),
    ],
)
def test_bad_input(loaded, fields, said):
    settings = SMALL | {"method": "gradient", "quadrants": True} | fields
    with pytest.raises(LongsealError, match=said):
        probe(loaded("llama"), tiny.Chance(), **settings)


def test_command_saves_the_best(capfd, checkpoint, tmp_path):
    command = ("probe", str(checkpoint("llama")), "--lengths", "800,900", "--samples", "2")
    command += ("--questions", "2", "--method", "gradient", "--quadrants")
    command += ("--rescale", "Q1:0.5", "--out", str(tmp_path / "run"))
    code, shown, _ = tiny.outcome(capfd, *command, "--save", str(tmp_path / "adapter"))
    assert code == 0
    assert "heads by quadrant" in shown
    if "no rescaling is better" in shown:
        assert not (tmp_path / "adapter").exists()
    else:
        assert Adapter.load(tmp_path / "adapter").record["rescaled"] == "Q1:0.5"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--lengths", "90k"), "beyond the model's window"),
        (("--prune", "L99H0"), "L99"),
        (("--lengths", "1k", "--quadrants"), "two lengths"),
    ],
)
def test_what_is_refused_leaves_no_folder(asked, said, capfd, checkpoint, tmp_path):
    out = tmp_path / "run"
    command = ("probe", str(checkpoint("llama")), "--method", "gradient", "--out", str(out))
    code, _, error = tiny.outcome(capfd, *command, *asked)
    assert code == 2
    assert said in error
    assert not out.exists()


def test_saving_needs_quadrants(capfd, checkpoint, tmp_path):
    code, _, said = tiny.outcome(
        capfd, "probe", str(checkpoint("llama")), "--save", str(tmp_path / "adapter")
    )
    assert code == 2
    assert "--quadrants" in said
