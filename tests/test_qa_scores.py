"""Answers score as LongBench and LV-Eval score them; every value here is worked out by hand."""

import json
import sys

import pytest

from longseal.errors import LongsealError
from longseal.tasks.qa import FAMILY
from longseal.tasks.qa.words import _cutter, chinese, english
from longseal.tasks.sample import Material, Question

CITIES = "北京，上海，广州，深圳，天津"
MILL = "red brick wall of old mill"


@pytest.fixture
def f1(tmp_path):
    def scored(dataset, prediction, answers, keywords=None):
        row = {"input": "?", "context": "C", "answers": answers, "length": 1, "dataset": dataset}
        path = tmp_path / "items.jsonl"
        path.write_text(json.dumps(row | {"answer_keywords": keywords}), "utf-8")
        task = FAMILY.make("mixed", Material((path,)))
        (question,) = task.samples[0].questions
        again = Question(  # as a saved run holds it
            question.text,
            question.answer,
            question.expected,
            fields=json.loads(json.dumps(dict(question.fields))),
        )
        scores = task.score(prediction, again)
        assert list(scores) == [task.metric]
        return scores[task.metric]

    return scored


@pytest.mark.parametrize(
    ("said", "meant", "score"),
    [
        ("The cat sat on the mat", "A cat on a mat", 6 / 7),  # 3 of 4 said, 3 of 3 meant
        ("ha ha ha", "ha ha", 4 / 5),  # 2 of 3, 2 of 2
        ("ha", "ha ha", 2 / 3),
        ("u.s.a", "USA!", 1.0),
        ("Dolores Park", "Dolores-Park", 0.0),  # one word when the hyphen is gone
        ("Theatre", "theatre an", 1.0),
        ("“yes”", "yes", 0.0),  # only ASCII marks are dropped
        ("", "yes", 0.0),
        ("yes", "The", 0.0),  # a reference without words
        ("مرحبا يا عالم", "عالم", 1 / 2),
    ],
)
def test_longbench_s_f1_is_of_words_without_marks_and_articles(f1, said, meant, score):
    assert f1("hotpotqa", said, [meant]) == pytest.approx(score)


def test_the_best_reference_counts_in_longbench_and_only_the_first_in_lv_eval(f1):
    assert f1("hotpotqa", "old mill", ["barn", "old mill", "mill"]) == 1.0
    assert f1("loogle_SD_mixup_16k", "old mill", ["barn", "old mill"]) == 0.0
    assert f1("factrecall_en", "old mill", ["old", "old mill"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("said", "trivia", "others"),
    [
        ("\n\nParis\nPassage: France", 1.0, 1 / 2),
        ("Paris", 1.0, 1.0),
        (" \nParis", 0.0, 1.0),  # a line of a space is a line
    ],
)
def test_only_triviaqa_is_judged_by_its_first_line(f1, said, trivia, others):
    assert f1("triviaqa", said, ["Paris"]) == f1("triviaqa_e", said, ["Paris"]) == trivia
    assert f1("hotpotqa", said, ["Paris"]) == pytest.approx(others)
    assert f1("loogle_CR_mixup", said, ["Paris"]) == pytest.approx(others)


@pytest.mark.parametrize(
    ("said", "answer", "keywords", "score"),
    [
        ("mill", "old mill", "red brick of the old mill", 2 / 3),  # 1 of 5 is .2: enough
        ("mill", "old mill", MILL, 0.0),  # 1 of 6
        ("of mill", "old mill", MILL, 0.0),  # a stop word is no key word found
        ("brick", "brick", "it was of brick in her", 0.0),  # but counts among the six
        ("brick", "it was brick", "brick", 1 / 2),  # nor is it dropped before the F1
        ("mill mill", "mill", "mill", 2 / 3),
        ("mill", MILL, None, 2 / 7),  # no gate without key words
        ("mill", MILL, "", 2 / 7),
        ("mill", MILL, "The?!", 2 / 7),  # LV-Eval divides by zero
        ("", "mill", "mill", 0.0),
    ],
)
def test_lv_eval_s_gate_lets_english_answers_through_from_a_fifth(
    f1, said, answer, keywords, score
):
    assert f1("loogle_SD_mixup_16k", said, [answer], keywords) == pytest.approx(score)


@pytest.mark.parametrize(
    ("said", "answer", "keywords", "score"),
    [
        ("北京，上海", CITIES, CITIES, 4 / 7),  # 2 of 5 is .4: enough
        ("北京", CITIES, CITIES, 0.0),
        ("北京", CITIES, "北京", 1 / 3),
        ("北京", CITIES, None, 0.0),  # the answer is the key words
        ("北京", CITIES, "", 0.0),
        ("北京", CITIES, "！？", 0.0),  # LV-Eval divides by zero
        ("北京、上海。", CITIES, None, 4 / 7),
        ("北京", "的，北京，和", None, 0.0),  # 1 of 3, stop words among the three
        ("的，和", "的，北京，和", None, 0.0),  # though the F1 is .8
        ("。", "。", None, 0.0),  # LV-Eval divides by zero
    ],
)
def test_lv_eval_s_gate_lets_chinese_answers_through_from_two_fifths(
    f1, said, answer, keywords, score
):
    assert f1("cmrc_mixup", said, [answer], keywords) == pytest.approx(score)


def test_some_sets_have_no_gate(f1):
    assert f1("factrecall_en_16k", "mill", [MILL], MILL) == pytest.approx(2 / 7)
    assert f1("factrecall_zh_16k", "北京", [CITIES], CITIES) == pytest.approx(1 / 3)
    assert f1("multifieldqa_zh", "北京", [CITIES], CITIES) == pytest.approx(1 / 3)
    assert f1("multifieldqa_zh_mixup", "北京", [CITIES], CITIES) == 0.0


def test_words_are_those_of_the_language():
    assert english("An  heir,\tthe ANT's a-b") == ["heir", "ants", "ab"]
    assert chinese("「ABC》 北京、 The 上海。") == ["abc", "北京", "the", "上海"]
    assert chinese("《") == ["《"]  # the one bracket that LongBench's list of marks lacks


def test_words_that_a_program_adds_to_jieba_change_no_score():
    import jieba

    jieba.add_word("深圳广州")
    try:
        assert list(jieba.cut("深圳广州")) == ["深圳广州"]
        assert chinese("深圳广州") == ["深圳", "广州"]
    finally:
        jieba.del_word("深圳广州")


def test_without_jieba_english_is_scored_and_chinese_names_what_to_install(f1, monkeypatch):
    _cutter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    assert f1("hotpotqa", "yes", ["yes"]) == 1.0
    with pytest.raises(LongsealError, match=r"pip install longseal\[zh\]"):
        f1("multifieldqa_zh", "是", ["是"])
