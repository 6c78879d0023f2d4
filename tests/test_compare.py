"""Whether a difference is real: exact where it can be, and never fooled by one lucky context."""

import numpy as np
import pytest
from scipy.stats import binomtest

from longseal.errors import LongsealError
from longseal.evaluation.compare import compare, sentence
from longseal.evaluation.results import Case, Evaluation
from longseal.terminal import comparison_lines


def cases(variant, scores, task="lines", length=600):
    """Scores by context and question."""
    return [
        Case(
            key="",
            variant=variant,
            task=task,
            group="",
            length=length,
            seed=0,
            context=context,
            question=question,
            tokens=length,
            size=1,
            depth=None,
            wanted_depth=None,
            prompt=f"{task}/{length}/{context}/{question}",
            expected=("1",),
            prediction="",
            thoughts=0,
            seconds=0.0,
            metric="last",
            scores={"last": float(score)},
        )
        for context, answers in enumerate(scores)
        for question, score in enumerate(answers)
    ]


def one(base, after):
    """The comparison of scores by context and question."""
    (found,) = compare(cases("base", base), cases("tuned", after))
    return found


def single(gained, lost, same):
    """One question a context, so many of them gained, lost, and right both times."""
    base = [[0]] * gained + [[1]] * lost + [[1]] * same
    return one(base, [[1]] * gained + [[0]] * lost + [[1]] * same)


@pytest.mark.parametrize(("gained", "lost"), [(9, 0), (0, 6), (7, 2), (3, 3), (60, 31)])
def test_one_question_a_context_is_mcnemar_s_exact_test(gained, lost):
    found = single(gained, lost, same=3)
    assert found.p == binomtest(gained, gained + lost).pvalue
    assert (found.gained, found.lost, found.questions) == (gained, lost, gained + lost + 3)
    assert found.difference == pytest.approx((gained - lost) / found.questions)


def test_all_questions_of_a_context_count_together():
    """Whole contexts changed sides: three ways of 2**3, though 24 questions went one way."""
    assert one([[0] * 8] * 3, [[1] * 8] * 3).p == 2 / 2**3
    contexts = [(8, 0), (7, 1), (2, 6), (8, 0), (5, 2), (3, 3), (6, 1)]
    base = [[0] * up + [1] * (8 - up) for up, _ in contexts]
    after = [[1] * up + [0] * down + [1] * (8 - up - down) for up, down in contexts]
    found = one(base, after)
    sums = np.array([up - down for up, down in contexts])
    signs = 1 - 2 * (np.arange(2**7)[:, None] >> np.arange(7) & 1)
    assert found.p == np.mean(np.abs(signs @ sums) >= abs(sums.sum()))
    assert (found.gained, found.lost, found.contexts) == (39, 13, 7)


def test_parts_of_a_point_are_compared_by_their_differences():
    base = [[0.1], [0.2], [0.4], [0.3], [0.5], [0.6], [0.2], [0.3]]
    found = one(base, [[score + rise] for (score,), rise in zip(base, RISES, strict=True)])
    assert found.p == 2 * 3 / 2**8  # as seen, or with either of the smallest turned, or all of it
    assert found.difference == pytest.approx(sum(RISES) / 8)
    assert found.low < found.difference < found.high
    assert not found.whole


RISES = (0.3, 0.25, 0.35, 0.05, -0.05, 0.2, 0.4, 0.15)


@pytest.mark.parametrize("questions", [1, 4])
def test_models_that_are_alike_are_called_different_at_most_one_time_in_twenty(questions):
    """Contexts are easy or hard, and a model takes to some contexts more than to others.

    Question by question (McNemar's test) it would be far more often, with several on a context.
    """
    random, runs = np.random.default_rng(1), 400
    called = naive = 0
    for _ in range(runs):
        ease = random.normal(size=(10, 1))
        scores = [
            random.random((10, questions)) < 1 / (1 + np.exp(-ease - random.normal(0, 2, (10, 1))))
            for _ in range(2)
        ]
        found = one(*scores)
        moved = found.gained + found.lost
        called += found.p < 0.05
        naive += moved > 0 and binomtest(found.gained, moved).pvalue < 0.05
    assert called / runs <= 0.055
    if questions > 1:
        assert naive / runs > 0.1


@pytest.mark.parametrize("questions", [1, 6])
def test_the_interval_holds_the_true_difference_nineteen_times_in_twenty(questions):
    random, runs = np.random.default_rng(2), 200

    held = 0
    for _ in range(runs):
        ease = random.uniform(0.2, 0.5, (10, 1))
        leans = (ease + gain + random.uniform(-0.2, 0.2, (10, 1)) for gain in (0, 0.25))
        base, after = (random.random((10, questions)) < lean for lean in leans)
        found = one(base, after)
        held += found.low <= 0.25 <= found.high
    assert held / runs >= 0.92


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 1), (0.5, 0.5), (0, 0.5)])
@pytest.mark.parametrize("contexts", [1, 12])
def test_an_interval_does_not_shrink_to_a_point_where_all_went_one_way(before, after, contexts):
    found = one([[before]] * contexts, [[after]] * contexts)
    assert -1 <= found.low < found.high <= 1
    assert found.high - found.low > 0.2
    assert found.low <= found.difference <= found.high


def test_each_task_and_length_is_compared_and_all_together_last():
    def asked(variant, right):
        return Evaluation(
            (
                *cases(variant, [[right]] * 6, length=512),
                *cases(variant, [[right]] * 6, length=1024),
                *cases(variant, [[1]] * 4, task="ruler/vt"),
            )
        )

    found = compare(asked("base", 0), asked("tuned", 1))
    assert [(c.task, c.length, c.questions, c.gained) for c in found] == [
        ("lines", 512, 6, 6),
        ("lines", 1024, 6, 6),
        ("ruler/vt", 600, 4, 0),
        ("", None, 16, 12),
    ]
    assert found[-1].p == 2 / 2**12
    assert [line.split(": ")[0] for line in comparison_lines(found)] == [
        "lines at 512 tokens",
        "lines at 1,024 tokens",
        "ruler/vt at 600 tokens",
        "all together",
    ]


def test_only_questions_that_both_were_asked_are_compared():
    base, tuned = cases("base", [[0]] * 6), cases("tuned", [[1]] * 4)
    assert compare(base, tuned)[0].questions == 4
    assert compare(base, []) == ()


def test_other_prompts_are_not_compared():
    tuned = [Case(**vars(case) | {"prompt": "other"}) for case in cases("tuned", [[1]])]
    with pytest.raises(LongsealError, match=r"base and tuned were asked different prompts \(lines"):
        compare(cases("base", [[0]]), tuned)


def test_two_models_in_one_are_not_compared():
    both = [*cases("base", [[0]]), *cases("folded", [[0]])]
    with pytest.raises(LongsealError, match="cases of base and folded"):
        compare(both, cases("tuned", [[0]]))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            lambda: single(9, 0, 3),
            "tuned is better: 9 of 12 questions went from wrong to right, none the other way; "
            "so much by chance alone: p = 0.0039",
        ),
        (
            lambda: single(1, 12, 0),
            "tuned is worse: 12 of 13 questions went from right to wrong, 1 the other way; "
            "so much by chance alone: p = 0.0034",
        ),
        (
            lambda: single(3, 1, 8),
            "no difference that 12 questions could show: 3 went from wrong to right, 1 the other "
            "way; as much by chance alone: p = 0.62",
        ),
        (
            lambda: single(0, 0, 12),
            "no difference: each of 12 questions got the same score from both",
        ),
        (
            lambda: single(5, 0, 0),
            "too few to say: 5 of 5 questions went from wrong to right, none the other way, which "
            "5 contexts cannot tell from chance; ask at least 6 questions",
        ),
        (
            lambda: one([[0] * 6] * 2, [[1] * 6] * 2),
            "too few to say: 12 of 12 questions on 2 contexts went from wrong to right, none the "
            "other way, which 2 contexts cannot tell from chance; ask at least 6 contexts "
            "(--questions 1 asks one question on each)",
        ),
        (
            lambda: one([[0.5, 0.25]] * 8, [[0.75, 0.5]] * 8),
            "tuned is better: the mean score of 16 questions on 8 contexts changed by +0.25 "
            "(95% interval +0.15 to +0.29); so much by chance alone: p = 0.0078",
        ),
    ],
)
def test_a_sentence_says_whether_the_difference_is_real(found, words):
    assert sentence(found()) == words
