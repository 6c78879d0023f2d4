"""The best on held-out samples is taken, as long as it does no harm elsewhere."""

import pytest

from longseal.tuning.choose import WEAKER, best, better, harmless
from longseal.tuning.held_out import Candidate

LAST, STRONGER, EARLIER = (8, 1.0), (8, 1.4), (4, 1.0)
UNCHANGED = (0, 0.0)


class Stub:
    """A judge that knows the answers beforehand; 0 where nothing is said."""

    def __init__(self, accuracy):
        self.accuracy, self.asked = accuracy, []

    def judge(self, state, step, strength):
        self.asked.append((step, strength))
        accuracy = self.accuracy.get((step, round(strength, 4)), 0.0)
        return Candidate(step, strength, accuracy, {"lines": accuracy})


def state(step):
    return {}


def chosen(base, accuracy, steps=8, first=0):
    judge = Stub(accuracy)
    last = first + steps
    so_far = Candidate(*UNCHANGED, base, {})
    if steps and base < 1:
        so_far = better(so_far, judge.judge(state(last), last, 1.0))
    found = best(judge, state, first, last, so_far)
    return (found.step, found.strength), judge.asked


def test_the_best_of_all_candidates_is_taken():
    for wanted in (LAST, STRONGER, EARLIER):
        others = dict.fromkeys((LAST, STRONGER, EARLIER), 0.5)
        assert chosen(0.2, others | {wanted: 0.75})[0] == wanted


def test_once_a_candidate_gets_everything_right_no_other_is_asked():
    assert chosen(0.5, {LAST: 1.0}) == (LAST, [LAST])
    assert chosen(0.5, {LAST: 0.7, EARLIER: 1.0}) == (EARLIER, [LAST, EARLIER])
    assert chosen(1.0, {LAST: 1.0}) == (UNCHANGED, [])


@pytest.mark.parametrize("score", [0.0, 0.5])
def test_what_was_there_before_wins_a_tie(score):
    everyone = dict.fromkeys((LAST, STRONGER, EARLIER), score)
    assert chosen(score, everyone)[0] == UNCHANGED


def test_unchanged_wins_over_what_is_worse():
    assert chosen(0.6, {LAST: 0.5, STRONGER: 0.3, EARLIER: 0.2})[0] == UNCHANGED


def test_the_last_step_at_its_own_strength_wins_a_tie_of_what_was_tuned():
    assert chosen(0.1, dict.fromkeys((LAST, STRONGER, EARLIER), 0.5))[0] == LAST


def test_of_a_later_length_only_its_own_steps_are_asked():
    assert chosen(0.1, {}, steps=4, first=8)[1] == [(12, 1.0), (10, 1.0), (12, 1.4)]


def test_a_single_step_has_no_earlier_one():
    assert (0, 1.0) not in chosen(0.2, {}, steps=1)[1]


def test_without_a_step_unchanged_is_all_there_is():
    assert chosen(0.1, {}, steps=0) == (UNCHANGED, [])


# No harm


class Most:
    """Allows strengths up to one; text is read as before up to another."""

    def __init__(self, strength, reads=2.0):
        self.strength, self.read, self.asked = strength, reads, []

    def reads(self, state, step, strength):
        return strength <= self.read

    def allows(self, state, step, strength):
        self.asked.append(strength)
        return strength <= min(self.strength, self.read)


def harmless_of(most, accuracy, found=(8, 1.4), reads=2.0):
    judge, bound = Stub(accuracy), Most(most, reads)
    base, best_one = Candidate(0, 0.0, 0.1, {}), Candidate(*found, 0.9, {})
    taken = harmless(judge, state, best_one, base, bound)
    return taken, judge.asked, bound.asked


def test_what_does_no_harm_is_taken_as_it_is():
    taken, judged, _ = harmless_of(2.0, {})
    assert (taken.step, taken.strength) == (8, 1.4)
    assert judged == []


def test_what_reads_text_worse_is_taken_as_far_as_it_reads_it_as_before():
    most = 1.4 * 9 / 16  # the greatest that four halvings find below 0.8
    taken, judged, asked = harmless_of(2.0, {(8, round(most, 4)): 0.8}, reads=0.8)
    assert (taken.step, taken.strength) == (8, pytest.approx(most))
    assert judged == [(8, pytest.approx(most))]
    assert asked == [1.4, pytest.approx(most)]


def test_what_other_formats_lose_weakens_it_further():
    weaker = {(8, round(1.4 * share, 4)): 0.9 - share / 10 for share in WEAKER}
    taken, _, asked = harmless_of(0.8, weaker)
    assert (taken.step, taken.strength) == (8, 0.7)
    assert asked == [1.4, pytest.approx(1.4 * 0.75), 0.7]


def test_a_weaker_version_that_gains_nothing_is_not_taken():
    taken, judged, _ = harmless_of(0.1, {(8, round(1.4 * 0.75, 4)): 0.5})
    assert taken.step == 0
    assert judged == [(8, pytest.approx(1.4 * 0.75)), (8, 0.7)]


def test_if_every_strength_does_harm_nothing_is_changed():
    weaker = {(8, round(1.4 * share, 4)): 0.9 for share in WEAKER}
    assert harmless_of(0.0, weaker)[0].step == 0
    assert harmless_of(2.0, weaker, reads=-1.0)[0].step == 0


def test_the_unchanged_model_needs_no_leave():
    base = Candidate(0, 0.0, 0.1, {})
    bound = Most(-1.0)
    assert harmless(Stub({}), state, base, base, bound) is base
    assert bound.asked == []
