"""What a tuning gained and paid is read from its record, and shown; older records say less."""

import pytest
from rich.console import Console
from test_report import SESSION, TUNING, cases, read, scales, write

from longseal import record
from longseal.scales import Scales
from longseal.terminal import chosen_line, guard_table, held_out_table

SENTENCE = "Held-out lines at 2,048 tokens rose from .12 to 1.00; needle fell by 4 points."
GUARDED = {
    "settings": {"task": ["lines", "ruler/vt:2"], "length": [1024, 2048], "seed": 7},
    "steps": 24,
    "chosen": {"step": 16, "strength": 0.7, "accuracy": 1.0},
    "held_out_base": 0.125,
    "stopped": None,
    "sentence": SENTENCE,
    "held_out": {
        "lines": {"base": 0.125, "chosen": 1.0},
        "ruler/vt": {"base": 0.2, "chosen": 0.6},
    },
    "guard": {
        "bound": 2.0,
        "base": {
            "formats": [{"name": "needle", "score": 0.75, "questions": 24}],
            "texts": [
                {"name": "prose", "tokens": 4096, "perplexity": 20.0, "kl": 0.0, "agreement": 1.0}
            ],
        },
        "chosen": {
            "formats": [{"name": "needle", "score": 0.71, "questions": 24, "reworded": 3}],
            "texts": [
                {
                    "name": "prose",
                    "tokens": 4096,
                    "perplexity": 20.3,
                    "kl": 0.0123,
                    "agreement": 0.956,
                }
            ],
        },
    },
    "full_length": {"length": 2048, "seconds": 754},
    "rungs": [
        {"train_length": 512, "steps": 16, "seconds": 20.5, "accuracy": 0.6, "stopped": None},
        {
            "train_length": 2048,
            "steps": 8,
            "seconds": 61.0,
            "accuracy": None,
            "stopped": "the loss stopped falling",
        },
    ],
}
OLD = {
    "task": "lines",
    "settings": {"task": "lines", "length": 2048},
    "steps": 16,
    "chosen": {"step": 16, "strength": 1.0, "accuracy": 0.875},
    "held_out_base": 0.125,
    "stopped": None,
}


def printed(table):
    console = Console(width=140, force_terminal=False)
    with console.capture() as text:
        console.print(table)
    return " ".join(text.get().replace("│", " ").split())


def test_wanted_tasks_come_first_and_then_those_that_were_watched():
    assert record.formats(GUARDED) == (
        record.Format("lines", True, 0.125, 1.0),
        record.Format("ruler/vt", True, 0.2, 0.6),
        record.Format("needle", False, 0.75, 0.71, 24, 3),
    )


def test_a_text_s_change_is_that_of_its_perplexity():
    (text,) = record.texts(GUARDED)
    assert text.change == pytest.approx(0.015)


def test_a_perplexity_without_a_number_is_infinite():
    (before,) = GUARDED["guard"]["base"]["texts"]
    lost = before | {"perplexity": None, "kl": None}
    broken = GUARDED | {"guard": {"base": {"texts": [before]}, "chosen": {"texts": [lost]}}}
    (text,) = record.texts(broken)
    assert text.change == text.kl == float("inf")
    assert "+inf%" in printed(guard_table(broken))


def test_tasks_are_those_asked_for_whoever_wrote_the_record():
    assert record.tasks(GUARDED) == ("lines", "ruler/vt")
    assert record.tasks(GUARDED | {"task": "lines, ruler/vt"}) == ("lines", "ruler/vt")
    assert record.tasks(OLD) == ("lines",)
    assert record.tasks({"settings": {"task": "my.jsonl"}, "task": "my"}) == ("my.jsonl", "my")
    assert record.tasks({"parts": [{"record": OLD}, {"record": GUARDED}]}) == ("lines", "ruler/vt")
    assert record.tasks({}) == ()


def test_a_family_that_was_tuned_on_holds_its_tasks_and_no_namesake():
    assert record.learned(("ruler",), "ruler/vt")
    assert record.learned(("ruler/vt",), "ruler/vt")
    assert not record.learned(("ruler",), "rulers")
    assert not record.learned(("ruler/vt",), "ruler")


def test_lengths_are_one_or_a_range():
    assert record.lengths(OLD) == (2048,)
    assert record.lengths(GUARDED) == (1024, 2048)
    assert record.lengths({}) == ()


def test_an_old_record_has_no_guard_and_no_ladder():
    assert record.formats(OLD) == record.texts(OLD) == record.rungs(OLD) == ()
    assert guard_table(OLD) is held_out_table(OLD) is None


def test_where_nothing_was_guarded_no_table_is_shown():
    off = GUARDED | {"guard": None}
    assert guard_table(off) is None
    assert held_out_table(off) is not None


# In the terminal


def test_the_choice_is_told_with_what_was_gained_and_paid():
    assert chosen_line(GUARDED) == f"chosen: step 16 of 24 at strength 0.7. {SENTENCE}"
    unchanged = GUARDED | {"chosen": {"step": 0, "strength": 0.0}, "stopped": "it was not finite"}
    assert chosen_line(unchanged) == (
        f"chosen: unchanged. {SENTENCE} Stopped early: it was not finite"
    )


def test_the_choice_of_an_old_record_is_told_as_it_was():
    assert chosen_line(OLD) == (
        "chosen: step 16 of 16 at strength 1, 0.88 of the held-out questions right (base: 0.12)"
    )


def test_the_tables_hold_every_format_before_and_after():
    held_out, guard = printed(held_out_table(GUARDED)), printed(guard_table(GUARDED))
    assert "lines 0.12 1.00 +87.5 points" in held_out
    assert "ruler/vt 0.20 0.60 +40.0 points" in held_out
    assert "needle" not in held_out
    assert "bound: 2 points, 2% perplexity" in guard
    assert "needle 0.75 0.71 -4.0 points 3 of 24 only in other words" in guard
    assert "prose, perplexity 20.00 20.30 +1.5% KL 0.0123, 95.6% of first choices the same" in guard


# In the page


def test_a_tuning_s_headline_is_its_sentence(tmp_path):
    text = read(write(tmp_path, [SESSION, *TUNING], scales(), more=GUARDED)).text
    assert text.count(SENTENCE) == 1
    assert text.index(SENTENCE) < text.index("Every format before")


def test_beside_an_evaluation_the_sentence_stands_with_the_choice(tmp_path):
    records = [SESSION, *cases("base"), *TUNING, *cases("tuned")]
    text = read(write(tmp_path, records, scales(), more=GUARDED)).text
    assert "At 2,048 tokens the base answered 1 of 24 right" in text
    assert text.index("The choice") < text.index(SENTENCE)


def test_the_page_shows_every_format_before_and_after_and_the_ladder(tmp_path):
    text = read(write(tmp_path, [SESSION, *TUNING], scales(), more=GUARDED)).text
    for part in (
        "lines (wanted) 0.12 1.00 +87.5 – –",
        "ruler/vt (wanted) 0.20 0.60 +40.0 – –",
        "needle 0.75 0.71 -4.0 24 3",
        "prose 4,096 20.00 20.30 +1.5% 0.0123 95.6%",
        "No other format was to lose more than 2 points (or one answer, which chance flips), "
        "no text more than 2% of perplexity.",
        "512 16 20.5 s 60%",
        "2,048 the loss stopped falling 8 61.0 s –",
        "The same steps at 2,048 tokens would have taken about 12 min 34 s.",
    ):
        assert part in text, part


def test_the_page_of_an_old_adapter_leaves_out_what_it_does_not_know(tmp_path):
    text = read(write(tmp_path, [SESSION, *TUNING], scales())).text
    assert "Held-out accuracy at 2,048 tokens went from 13% to 100%." in text
    assert "Every format before and after" not in text
    assert "Lengths that were trained at" not in text


def test_a_range_of_lengths_is_named_in_the_headline(tmp_path):
    more = {"settings": {"length": [1024, 2048]}}
    text = read(write(tmp_path, [SESSION, *TUNING], scales(), more=more)).text
    assert "Held-out accuracy at 1,024 to 2,048 tokens went from 13% to 100%." in text


def test_what_was_left_unchanged_says_its_sentence_too(tmp_path):
    said = {"sentence": "Nothing within the bound was better, so nothing was changed."}
    zeros = Scales.zeros("head", scales().sites)
    text = read(write(tmp_path, [SESSION, TUNING[0]], zeros, more=said)).text
    assert said["sentence"] in text
