"""Training lengths rise as long as that pays, from the best that the shorter ones found."""

from types import SimpleNamespace

import pytest
import tiny

from longseal import TuneConfig
from longseal.tasks import Recorded, Wanted
from longseal.tuning.held_out import Candidate
from longseal.tuning.ladder import Climbed, climb, mend, planned
from longseal.tuning.samples import Mixture, Samples
from longseal.tuning.training import Rung, Start


class Any(tiny.ShortLines):
    name = "any"


def mixture(shortest=512, **fields):
    parts = [SimpleNamespace(shortest=shortest, longest=900, weight=1.0, task=Any())]
    return Mixture(parts), TuneConfig(**fields)


def planned_lengths(**fields):
    return [length for length, _ in planned(*mixture(**fields))]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ("512", [512]),
        ("1k", [512, 1024]),
        ("2k", [512, 2048]),
        ("31k", [512, 2048, 8192, 31744]),
        ("4k-31k", [512, 2048, 8192, 31744]),
    ],
)
def test_lengths_quadruple_up_to_the_wanted_one(length, expected):
    assert planned_lengths(length=length) == expected


def test_a_task_that_cannot_be_made_short_starts_longer():
    assert planned_lengths(shortest=1024, length="8k") == [
        1024,
        4096,
        8192,
    ]


def test_a_training_length_that_is_set_is_the_only_one():
    assert planned_lengths(length="8k", train_length="1k") == [1024]


def test_samples_of_a_file_have_one_length():
    assert planned_lengths(shortest=None, length="8k") == [900]


class Trainer:
    """Says what it was asked for, and keeps nothing."""

    def __init__(self):
        self.asked, self.fresh, self.keeps = [], [], []

    def rung(self, length, start, steps, part=1.0, keeps=1.0):
        self.fresh.append(start.fresh)
        self.keeps.append(keeps)
        self.asked.append((length, start.steps, start.strength, steps, part))
        states = {start.steps + i + 1: {"step": start.steps + i + 1} for i in range(steps)}
        trajectory = SimpleNamespace(
            first=start.steps, last=start.steps + steps, state=lambda step: states[step]
        )
        return Rung(length, trajectory, 1.0, None, start.fresh, keeps)


class Judge:
    """Knows beforehand how well each rung's last step does; its other candidates are worse."""

    def __init__(self, *accuracies):
        self.accuracies, self.asked = dict(accuracies), []

    def judge(self, state, step, strength):
        self.asked.append((step, strength, state))
        accuracy = self.accuracies.get((step, strength), 0.0)
        accuracy = accuracy or (self.accuracies.get(step, 0.0) if strength == 1.0 else 0.0)
        return Candidate(step, strength, accuracy, {"any": accuracy})


def test_the_optimiser_goes_on_where_the_numbers_do():
    """Its first step would be as large as the rate allows, whatever the gradient."""
    config = mixture(length="31k", samples=64, questions=8)
    unchanged = Candidate(0, 0.0, 0.1, {"any": 0.1})
    trainer = Trainer()
    climb(trainer, Judge((8, 0.5), (12, 0.6), (16, 0.6)), *config, unchanged)
    assert trainer.fresh == [0, 0, 0]
    trainer = Trainer()
    climb(trainer, Judge((8, 0.1), (12, 0.6), (16, 0.7), (20, 0.7)), *config, unchanged)
    assert trainer.fresh == [0, 8, 8, 8]


def climbed(*accuracies, base=0.1, **fields):
    trainer, judge = Trainer(), Judge(*accuracies)
    parts, config = mixture(length="31k", samples=64, questions=8, **fields)
    found = climb(trainer, judge, parts, config, Candidate(0, 0.0, base, {"any": base}))
    return found, trainer.asked, judge.asked


def test_it_stops_at_the_first_length_that_does_not_pay():
    found, asked, _ = climbed((8, 0.5), (12, 0.8), (16, 0.8))
    assert [length for length, *_ in asked] == [512, 2048, 8192]
    assert found.best[-1].step == 12
    assert found.state(12) == {"step": 12}


def test_it_stops_once_everything_is_right():
    _, asked, _ = climbed((8, 1.0))
    assert [length for length, *_ in asked] == [512]


def test_where_short_contexts_teach_nothing_a_longer_one_is_tried():
    found, asked, _ = climbed((8, 0.1), (12, 0.6))
    assert [length for length, *_ in asked] == [512, 2048, 8192]
    assert asked[1][1:3] == (8, 0.0)  # from the unchanged model
    assert found.best[-1].step == 12


def test_a_longer_length_goes_on_from_the_best_with_half_the_steps_and_the_budget():
    _, asked, _ = climbed((8, 0.5), (12, 0.6))
    assert asked[:2] == [(512, 0, 0.0, 8, 1.0), (2048, 8, 1.0, 4, 0.5)]


def test_of_each_length_the_last_step_is_judged_and_of_the_best_the_others_too():
    found, _, judged = climbed((8, 0.5), (12, 0.8), (16, 0.8), ((12, 1.4), 0.9))
    asked = [(step, strength) for step, strength, _ in judged]
    assert asked == [(8, 1.0), (12, 1.0), (16, 1.0), (10, 1.0), (12, 1.4)]
    assert [(each.step, each.strength) for each in found.best] == [(8, 1.0), (12, 1.4), (12, 1.4)]


def test_where_no_last_step_is_better_the_longest_length_s_others_are_asked():
    found, _, judged = climbed((8, 0.1), (12, 0.1), ((10, 1.0), 0.4))
    assert [(step, strength) for step, strength, _ in judged][-2:] == [(10, 1.0), (12, 1.4)]
    assert (found.best[-1].step, found.best[-1].accuracy) == (10, 0.4)


def test_steps_that_are_set_are_the_first_length_s():
    _, asked, _ = climbed((5, 1.0), steps=5)
    assert asked == [(512, 0, 0.0, 5, 1.0)]


def test_the_paper_s_recipe_takes_its_last_step_as_it_is():
    found, asked, judged = climbed((8, 0.05), base=0.5, recipe="paper", train_length="31k")
    assert [length for length, *_ in asked] == [31744]
    assert found.best[-1].step == 8
    assert [(step, strength) for step, strength, _ in judged] == [(8, 1.0)]


# Several tasks


def named(name, weight):
    return SimpleNamespace(
        task=name, weight=weight, step=lambda length, number: (name, length, number)
    )


def test_each_task_has_its_turns_by_weight():
    parts = Mixture([named("lines", 2.0), named("needle", 1.0)])
    steps = [parts.step(512, number) for number in range(6)]
    assert [name for name, *_ in steps].count("lines") == 4
    assert [number for name, _, number in steps if name == "needle"] == [0, 1]
    assert [number for name, _, number in steps if name == "lines"] == [0, 1, 2, 3]
    assert parts.mean([1.0, 0.4]) == pytest.approx(0.8)


def test_a_range_of_lengths_is_judged_at_both_ends():
    config = TuneConfig(length="600-1200", train_length=600, questions=4, held_out=4)
    samples = Samples(tiny.ShortLines(), 1.0, tiny.prompts(), config, None)
    held_out = samples.held_out()
    assert sum(len(sample.questions) for sample in held_out) == 4
    lengths_of = sorted(sample.length for sample in held_out)
    assert lengths_of[0] <= 600 < 1100 < lengths_of[-1] <= 1200


class File(Recorded):
    max_new_tokens, metric = 4, "last"

    def score(self, prediction, question):
        return {"last": 0.0}


def test_a_file_s_steps_go_through_its_training_samples_without_leaving_one_out():
    prompts = tiny.prompts()
    made = [tiny.ShortLines().sample(Wanted(3, 2, f"s/{i}")) for i in range(20)]
    config = TuneConfig(length="2k", questions=4)
    samples = Samples(File("file", made), 1.0, prompts, config, None)
    seen = [each.source.context for step in range(6) for each in samples.step(0, step)]
    train = [sample.context for place, sample in enumerate(made) if place % 5 < 3]
    assert sorted(seen) == sorted(train)


def ladder(trainer, best):
    """A climb of two lengths, of 8 steps and 4."""
    unchanged = Candidate(0, 0.0, 0.1, {"any": 0.1})
    rungs = (trainer.rung(512, Start(), 8), trainer.rung(2048, Start(None, 0.0, 8, 8), 4))
    return Climbed(rungs, (unchanged, best))


def test_harm_is_mended_from_the_best_with_text_counting_more():
    trainer, judge = Trainer(), Judge((16, 0.7))
    before = ladder(trainer, Candidate(12, 1.0, 0.6, {"any": 0.6}))
    found = mend(trainer, judge, before)
    assert trainer.asked[-1] == (2048, 12, 1.0, 4, 0.5)
    assert trainer.keeps == [1.0, 1.0, 16.0]
    assert trainer.fresh[-1] == 8  # the optimiser of that length goes on
    assert judge.asked == [(16, 1.0, {"step": 16})]
    assert found.rungs[:2] == before.rungs
    assert (found.best[-1].step, found.best[-1].accuracy) == (16, 0.7)
    assert found.state(16) == {"step": 16}
    assert found.state(12) == {"step": 12}


def test_where_the_best_is_no_last_step_the_optimiser_starts_anew():
    trainer = Trainer()
    mend(trainer, Judge(), ladder(trainer, Candidate(10, 1.0, 0.6, {"any": 0.6})))
    assert trainer.fresh[-1] == 12
