"""One flipped answer is no harm, two are; a gain does not pay for a loss."""

import pytest

from longseal.tuning.guard import FormatScore, Measured, TextScore, harm

BASE = (0.5, 0.75, 0.25)


def found(*scores, perplexity=(20.0, 10.0), questions=4):
    """Formats of these scores, and two texts."""
    formats = [
        FormatScore(f"format {i}", score, questions, 1 / questions)
        for i, score in enumerate(scores)
    ]
    texts = [TextScore(f"text {i}", 255, value) for i, value in enumerate(perplexity)]
    return Measured(tuple(formats), tuple(texts))


@pytest.mark.parametrize(
    ("now", "harmless"),
    [
        ((0.5, 0.75, 0.25), True),
        ((0.25, 0.75, 0.25), True),  # one answer
        ((0.0, 0.75, 0.25), False),  # two of one format
        ((0.25, 0.5, 0.25), False),  # one each of two
        ((0.25, 0.5, 0.5), True),  # and one gained: noise goes both ways
        ((0.25, 0.5, 0.0), False),
        ((0.0, 0.75, 1.0), False),  # a gain elsewhere does not pay
        ((0.25, 0.25, 1.0), False),
        ((1.0, 1.0, 1.0), True),
    ],
)
def test_one_answer_is_forgiven_and_no_more(now, harmless):
    assert harm(found(*BASE), found(*now)).within(0.02) is harmless


def test_with_many_questions_the_bound_is_what_counts():
    base = found(0.5, 0.5, questions=200)
    for bound, lost in ((0.02, 0.02), (0.05, 0.05)):
        assert harm(base, found(0.5 - lost, 0.5 - lost, questions=200)).within(bound)
        assert not harm(base, found(0.5 - lost - 0.01, 0.5, questions=200)).within(bound)
        assert not harm(base, found(0.5 - lost - 0.01, 0.9, questions=200)).within(bound)


def test_no_text_may_become_harder_to_predict_than_the_bound():
    base = found(*BASE)
    assert harm(base, found(*BASE, perplexity=(20.3, 9.0))).within(0.02)
    worse = harm(base, found(*BASE, perplexity=(19.0, 10.25)))
    assert not worse.within(0.02)
    assert worse.within(0.03)
    assert worse.worst_text == pytest.approx(0.025)


def test_the_sentence_says_what_was_paid():
    base = found(*BASE)
    said = harm(base, found(0.0, 0.5, 1.0, perplexity=(19.0, 10.25))).sentence
    assert said == (
        "2 of 3 other formats lost: most of all format 0, 50.0 points (0.50 to 0.00, 4 questions); "
        "perplexity +2.5% on the worst text, text 1"
    )
    said = harm(base, found(*BASE, perplexity=(19.9, 9.0))).sentence
    assert said == (
        "none of 3 other formats lost anything; perplexity -0.5% on the worst text, text 0"
    )


def test_without_formats_text_alone_is_judged():
    base = found()
    assert harm(base, found()).within(0)
    assert not harm(base, found(perplexity=(30.0, 10.0))).within(0.02)
    assert "format" not in harm(base, found()).sentence
