"""Chains, common words and frequent words: RULER's templates, examples and counts."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from ruler_samples import prompt, sample

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def chain(text):
    """Variables in the order of their assignments, and their value."""
    (first, value), *_ = re.findall(r"^VAR ([A-Z]+) = (\d{5})$", text, re.MULTILINE)
    pairs = re.findall(r"^VAR ([A-Z]+) = VAR ([A-Z]+) $", text, re.MULTILINE)
    names = [first, *(name for name, _ in pairs)]
    assert [before for _, before in pairs] == names[:-1]
    return names, value


def vt(context, value):
    return (
        "Memorize and track the chain(s) of variable assignment hidden in the following text."
        f"\n\n{context}\nQuestion: Find all variables that are assigned the value {value} in the "
        "text above. Answer: According to the chain(s) of variable assignment in the text above, "
        f"5 variables are assigned the value {value}, they are: "
    )


def test_variable_tracking_is_ruler_s_after_an_example():
    made = sample("vt", 200)
    example, rest = prompt(made).split("\n\nMemorize")
    contexts = [part.split("\n\n", 1)[1].split("\nQuestion")[0] for part in (example, rest)]
    (shown, shown_value), (names, value) = map(chain, contexts)
    answer = " ".join(shown)
    assert prompt(made) == (f"{vt(contexts[0], shown_value)} {answer}\n\n{vt(contexts[1], value)}")
    assert made.questions[0].expected == tuple(names)
    assert all(len(name) == 3 for name in shown)
    assert all(len(name) == 5 for name in names)
    assert len(set(names)) == 5
    for lines in (context.split("\n") for context in contexts):
        assert {line for line in lines if not line.startswith("VAR")} == {NOISE}
        assert not any(a.startswith("VAR") and b.startswith("VAR") for a, b in pairwise(lines))
    assert contexts[1].count(NOISE) == 40


def test_the_example_is_answered_as_the_question_is_to_be():
    made = sample("vt", 100)
    shown = made.context.split("they are: ")[1].split("\n")[0]
    assert re.fullmatch(r"( [A-Z]{3}){5}", shown)
    assert re.fullmatch(r"( [A-Z]{5}){5}", made.questions[0].answer)


@pytest.mark.parametrize(("words", "lines"), [(1, 22), (3, 5)])
def test_the_example_has_as_much_noise_as_500_tokens_hold(words, lines):
    """At least five lines, and with one token a word 22."""
    made = sample("vt", 500, count=lambda text: words * len(text.split()))
    example = made.context.split("\n\nMemorize")[0]
    assert example.count(NOISE) == lines
    text = example[: example.index("they are: ") + 10]
    assert words == 3 or 500 - 19 < len(text.split()) <= 500


def test_the_example_of_a_short_sample_has_no_more_noise_than_the_question():
    made = sample("vt", 37)
    assert [part.count("The grass") for part in made.context.split("\n\nMemorize")] == [8, 8]


def entries(text):
    """Words of a numbered list."""
    found = re.split(r"(?:^| )(\d+)\. ", text)
    assert [int(number) for number in found[1::2]] == list(range(1, len(found) // 2 + 1))
    return found[2::2]


def cwe(words):
    return (
        "Below is a numbered list of words. In these words, some appear more often than others. "
        f"Memorize the ones that appear most often.\n{words}\nQuestion: What are the 10 most "
        "common words in the above list? Answer: The top 10 words that appear most often in the "
        "list are:"
    )


@pytest.mark.parametrize(
    ("size", "shown_counts", "counts"),
    [
        (1000, {3: 10, 1: 10}, {6: 10, 1: 900}),
        (2500, {10: 10, 3: 30}, {30: 10, 3: 670}),
        (4500, {10: 10, 3: 30}, {30: 10, 3: 1336}),
    ],
)
def test_common_words_are_ruler_s_after_an_example(size, shown_counts, counts):
    """Shorter than 4096 tokens (here: words), with smaller counts."""
    made = sample("cwe", size)
    example, rest = prompt(made).split("\nBelow")
    lists = [part.split("often.\n")[1].split("\nQuestion")[0] for part in (example, rest)]
    shown, listed = (Counter(entries(text)) for text in lists)
    answer = example.split("list are: ")[1]
    assert prompt(made) == f"{cwe(lists[0])} {answer}\n{cwe(lists[1])}"
    assert Counter(shown.values()) == shown_counts
    assert Counter(listed.values()) == counts
    assert set(entries(answer)) == {word for word, _ in shown.most_common(10)}
    assert set(made.questions[0].expected) == {word for word, _ in listed.most_common(10)}
    assert size - 3 < shown.total() + listed.total() <= size


def test_a_list_goes_on_beyond_the_dictionary():
    listed = entries(sample("cwe", 30_000).context.split("often.\n")[2])
    assert Counter(Counter(listed).values()) == {30: 10, 3: 9836}


def fwe(words):
    return (
        "Read the following coded text and track the frequency of each coded word. Find the three "
        f"most frequently appeared coded words. {words}\nQuestion: Do not provide any explanation."
        " Please ignore the dots '....'. What are the three most frequently appeared words in the "
        "above coded text? Answer: According to the coded text above, the three most frequently "
        "appeared words are:"
    )


def test_frequent_words_are_ruler_s_with_zipf_s_frequencies():
    made = sample("fwe", 2000)
    text = made.context.split("coded words. ")[1]
    assert prompt(made) == fwe(text)
    (dots, first), *coded = Counter(text.split()).most_common()
    assert dots == "..."
    assert first == 1215  # 2000 / zeta(2)
    assert [times for _, times in coded[:4]] == [303, 135, 75, 48]
    assert [word for word, _ in coded[:3]] == list(made.questions[0].expected)
    assert all(re.fullmatch("[a-z]{6}", word) for word, _ in coded)
    assert coded[-1][1] == 1


@pytest.mark.parametrize("size", range(53, 400))
def test_the_three_most_frequent_words_have_no_rival(size):
    text = sample("fwe", size).context.split("coded words. ")[1]
    counts = [times for _, times in Counter(text.split()).most_common()]
    assert counts[3] > counts[4]


@pytest.mark.parametrize(("name", "size"), [("cwe", 300), ("fwe", 300)])
def test_every_sample_is_shuffled_on_its_own(name, size):
    """RULER's list had the same word (by frequency) at a place in every sample."""
    orders = set()
    for seed in ("a", "b", "c"):
        made = sample(name, size, seed)
        text = made.context.split("often.\n" if name == "cwe" else "coded words. ")[-1]
        words = entries(text) if name == "cwe" else text.split()
        rank = {word: place for place, word in enumerate(made.questions[0].expected)}
        orders.add(tuple(rank.get(word) for word in words))
    assert len(orders) == 3
