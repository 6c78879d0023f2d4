"""Needles stand where they are wanted, are the published ones in tests and never in training."""

import re
from uuid import UUID

import pytest
import tiny

from longseal.errors import LongsealError
from longseal.tasks import needles
from longseal.tasks.fitting import fit
from longseal.tasks.haystack import Haystack
from longseal.tasks.needle import FAMILY, NeedleTask, hide
from longseal.tasks.sample import Material, Wanted

NEEDLE = (
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny "
    "day."
)
PIZZA = [
    "Figs are one of the secret ingredients needed to build the perfect pizza.",
    "Prosciutto is one of the secret ingredients needed to build the perfect pizza.",
    "Goat cheese is one of the secret ingredients needed to build the perfect pizza.",
]
#: Sentences of many lengths, in three ways of writing.
PROSE = {
    "english": "It rained. Nobody in the long valley had seen so much of it since the old mill "
    "burned down! Was it over? She said: “Not yet.” The cows stood still.\n\nA boat came.\n\n",
    "chinese": "雨下了一整夜。村子里的人从来没有见过这么大的雨，连最老的磨坊主也说"
    "不清它什么时候会停！停了吗？她说：“还没有。”牛群一动不动地站在河边，等着天亮。\n\n船来了。\n\n",
    "arabic": "نزل المطر. لم ير أحد في الوادي الطويل مثل هذا المطر منذ أن احترقت الطاحونة القديمة! "
    "هل انتهى؟ قالت: «ليس بعد». وقفت الأبقار ساكنة بجانب النهر تنتظر الصباح.\n\nجاء قارب.\n\n",
}


@pytest.fixture(scope="module")
def prompts():
    return tiny.prompts()


def task(variant="single", haystack=None):
    return FAMILY.make(variant, Material(haystack=haystack))


def context_and_prompt(variant, **wanted):
    sample = task(variant).sample(Wanted(size=300, **wanted))
    return sample.context, sample.context + sample.questions[0].text


def test_the_single_needle_is_the_published_one():
    context, prompt = context_and_prompt("single", depth=0.5)
    assert context.count(NEEDLE) == 1
    assert prompt == f"{context}\n\nWhat is the best thing to do in San Francisco?"
    (question,) = task().sample(Wanted(size=300)).questions
    assert question.expected == ("eat a sandwich and sit in Dolores Park",)


def test_the_three_needles_are_the_published_ones_spread_from_the_depth_to_the_end():
    context, prompt = context_and_prompt("multi", depth=0.25, count=len)
    assert prompt == (
        f"{context}\n\nWhat are the secret ingredients needed to build the perfect pizza?"
    )
    rest = len(context) - sum(map(len, PIZZA))
    places = [context.index(needle) - sum(map(len, PIZZA[:i])) for i, needle in enumerate(PIZZA)]
    assert [place / rest for place in places] == pytest.approx([0.25, 0.5, 0.75], abs=0.05)
    (question,) = task("multi").sample(Wanted(size=300)).questions
    assert question.expected == ("figs", "prosciutto", "goat cheese")


def test_the_code_is_a_uuid_of_the_seed_s():
    def code(seed):
        context, prompt = context_and_prompt("uuid", seed=seed, depth=0.5)
        assert prompt == f"{context}\n\nWhat is the secret code?"
        (found,) = re.findall(r"The secret code is (\S{36})\.", context)
        assert UUID(found).version == 4
        return found

    assert code("a") == code("a") != code("b")


@pytest.mark.parametrize("variant", FAMILY.variants)
@pytest.mark.parametrize("length", [1200, 5000])
def test_depths_in_tokens_are_within_2_percent_of_those_wanted(prompts, variant, length):
    needle = task(variant)
    assert needle.depths == pytest.approx([i / 10 for i in range(11)])
    for depth in needle.depths:
        made = fit(prompts, needle, length, 1, "s", depth=depth)
        (measured,) = prompts.depths(made.source)
        assert measured == pytest.approx(depth, abs=0.02)
        assert 0.95 * length <= made.length + needle.max_new_tokens <= length


@pytest.mark.parametrize("script", PROSE)
def test_depths_hold_in_other_scripts(prompts, tmp_path, script):
    (tmp_path / "hay.txt").write_text(PROSE[script] * 3, "utf-8")
    for depth in (0, 0.33, 0.5, 0.8, 1):
        made = fit(prompts, task(haystack=tmp_path), 3000, 1, "s", depth=depth)
        assert made.source.context.count(NEEDLE) == 1
        (measured,) = prompts.depths(made.source)
        assert measured == pytest.approx(depth, abs=0.02)


def test_the_ends_are_the_very_ends():
    for depth, place in ((0, str.startswith), (1, str.endswith)):
        context, _ = context_and_prompt("single", depth=depth)
        assert place(context, NEEDLE)


def test_a_needle_goes_between_sentences_where_one_ends_near_and_else_between_words():
    text = "One two. Three four.\n\nFive six. " * 40
    assert re.search(r"[.\s]\sNEEDLE\s", hide(text, [(0.47, "NEEDLE")], len))
    assert re.search(r"word NEEDLE word", hide("word " * 300, [(0.47, "NEEDLE")], len))
    assert hide("雨下了一整夜", [(0.5, "NEEDLE")], len) == "雨下了 NEEDLE 一整夜"


@pytest.mark.parametrize("variant", FAMILY.variants)
def test_all_depths_share_the_haystack_and_the_needle(variant):
    def hay(depth):
        wanted = Wanted(size=400, seed="s", depth=depth, count=len)
        sample = task(variant).sample(wanted)
        context = sample.context
        for sentence in sample.questions[0].fields["needle"]:
            context = context.replace(sentence, "")
        return context.split(), sample.questions

    assert hay(0.1) == hay(0.6) == hay(1.0)


def test_prompts_of_two_depths_are_alike_up_to_the_first_needle():
    early, late = (context_and_prompt("single", depth=d)[0] for d in (0.4, 0.9))
    start = early.index(NEEDLE)
    assert start > 0
    assert late.startswith(early[:start])


def test_seeds_begin_at_different_places():
    starts = {context_and_prompt("single", seed=str(i), depth=1.0)[0][:40] for i in range(8)}
    assert len(starts) > 4


@pytest.mark.parametrize("variant", FAMILY.variants)
def test_a_longer_sample_asks_the_same(variant):
    short, long = (
        task(variant).sample(Wanted(size=size, questions=2, training=True)) for size in (600, 2000)
    )
    assert short.questions == long.questions


@pytest.mark.parametrize("variant", FAMILY.variants)
def test_training_hides_other_needles_each_once(variant):
    sentences = set()
    for seed in range(10):
        wanted = Wanted(size=1500, questions=8, seed=str(seed), training=True)
        sample = task(variant).sample(wanted)
        assert len({question.text for question in sample.questions}) == 8
        for question in sample.questions:
            sentences |= set(question.fields["needle"])
            for sentence in question.fields["needle"]:
                assert sample.context.count(sentence) == 1
            scores = task(variant).score(question.answer, question)
            assert scores["substring"] == 1
            assert scores["rouge1"] > 0.5
        published = "San Francisco|Dolores|sandwich|pizza|prosciutto|goat cheese|The secret code"
        assert not re.search(published, sample.context, re.IGNORECASE)
    assert len(sentences) == 10 * 8 * (3 if variant == "multi" else 1)


def test_training_spreads_the_needles_over_the_haystack(prompts):
    depths = [
        depth
        for seed in range(5)
        for depth in prompts.depths(
            task().sample(
                Wanted(size=1000, questions=8, seed=str(seed), training=True, count=prompts.count)
            )
        )
    ]
    assert {int(4 * depth) for depth in depths} >= {0, 1, 2, 3}


def test_short_training_samples_hold_fewer_needles():
    assert [
        len(task("multi").sample(Wanted(size=size, questions=8, training=True)).questions)
        for size in (50, 240, 2000)
    ] == [1, 2, 8]


def test_needles_to_tune_on_are_many_and_about_as_long_as_the_published_one():
    random = Wanted(size=1).random()
    made = [needles.other_single(random) for _ in range(2000)]
    assert len({needle.sentences for needle in made}) > 1990
    lengths = [len(needle.sentences[0].split()) for needle in made]
    assert all(15 <= length <= 30 for length in lengths)  # the published one has 21 words
    for needle in made:
        (sentence,), (key,) = needle.sentences, needle.expected
        assert key in sentence
        assert not re.search(r"[][{}]", sentence + needle.question)
        asked = set(re.findall(r"\w+", needle.question.lower()))
        before = re.findall(r"\w+", sentence.partition(key)[0].lower())
        assert len(asked & set(before)) >= 3  # what is asked stands before what is answered


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("Eat a sandwich and sit in Dolores Park.", 1),
        # A judge gave such right but wordy answers 1 of 10 (needle-in-a-haystack, issue 39).
        (f"According to the text, and among much else about the sea: {NEEDLE} Enjoy!", 1),
        ("EAT A SANDWICH AND SIT IN DOLORES PARK", 1),
        ("Eat a sandwich in Dolores Park.", 0),
        ("", 0),
    ],
)
def test_a_single_answer_is_right_where_it_holds_the_phrase(said, right):
    (question,) = task().sample(Wanted(size=300)).questions
    assert task().score(said, question)["substring"] == right


def test_several_needles_score_the_share_found():
    (question,) = task("multi").sample(Wanted(size=300)).questions
    said = {"Figs.": 1 / 3, "figs and GOAT CHEESE": 2 / 3, question.answer: 1, "olives": 0}
    for answer, share in said.items():
        assert task("multi").score(answer, question)["substring"] == pytest.approx(share)


def test_rouge_is_the_share_of_the_needle_s_words():
    (question,) = task().sample(Wanted(size=300)).questions
    phrase = "eat a sandwich and sit in Dolores Park on a sunny day"  # 12 of 21 words
    said = {NEEDLE: 1, f"Well: {NEEDLE}": 1, phrase: 12 / 21, "swim": 0, "": 0}
    for answer, share in said.items():
        assert task().score(answer, question)["rouge1"] == pytest.approx(share)


def test_rouge_of_several_needles_is_their_mean():
    (question,) = task("multi").sample(Wanted(size=300)).questions
    shares = {PIZZA[0]: (1 + 11 / 13 + 11 / 14) / 3, " ".join(PIZZA): 1, "figs": 1 / 13 / 3}
    for answer, share in shares.items():
        assert task("multi").score(answer, question)["rouge1"] == pytest.approx(share)


def test_a_haystack_that_holds_the_needle_already_is_refused():
    needle = NeedleTask("single", Haystack((f"One. {NEEDLE} Two.",), "essays.txt"))
    with pytest.raises(LongsealError, match=r"essays\.txt holds the needle already"):
        needle.sample(Wanted(size=50))
