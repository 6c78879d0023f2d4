"""Lines are LongEval's, byte for byte, and so is the score."""

import json
import re
from pathlib import Path
from random import Random

import pytest

from longseal.errors import LongsealError
from longseal.tasks import Question, Wanted, lines, task
from longseal.tasks.lines import Lines, read_longeval

LONGEVAL = Path(__file__).parents[2] / "shared" / "data" / "longeval"
LINE = re.compile(r"line (.+): REGISTER_CONTENT is <(\d+)>\n")

needs_longeval = pytest.mark.skipif(
    not LONGEVAL.is_dir(), reason="LongEval's files are not in ../shared/data/longeval"
)


def rows():
    text = (LONGEVAL / "lines" / "200_lines.jsonl").read_text("utf-8")
    return [json.loads(row) for row in text.splitlines()]


class Scripted(Random):
    """A random source that draws the keys, the values and the question that it is told to."""

    def __init__(self, *draws):
        super().__init__(0)
        self._draws = list(draws)

    def sample(self, population, k):
        drawn = self._draws.pop(0)
        assert len(drawn) == k
        assert all(value in population for value in drawn)
        return drawn


class Drawn:
    """A wish for lines from a scripted source."""

    questions, depth = 1, None

    def __init__(self, size, random):
        self.size, self.random = size, lambda: random


def asked(value):
    return Question("", "", (value,))


@needs_longeval
def test_prompts_equal_longeval_s_byte_for_byte(monkeypatch):
    for row in rows():
        pairs = LINE.findall(row["prompt"])
        assert len(pairs) == row["num_lines"] == 200
        firsts, lasts = zip(*(key.rsplit("-", 1) for key, _ in pairs), strict=True)
        monkeypatch.setattr(lines, "_words", lambda a=firsts, n=lasts: (list(a), list(n)))
        key, place = row["random_idx"]
        drawn = Scripted([i * 200 + i for i in range(200)], [int(v) for _, v in pairs], [place])

        sample = Lines().sample(Drawn(200, drawn))

        assert sample.context + sample.questions[0].text == row["prompt"]
        assert sample.questions[0].expected == (str(row["expected_number"]),)
        assert key in sample.questions[0].text


@needs_longeval
def test_generated_prompts_differ_from_longeval_s_in_keys_and_values_only():
    sample = Lines().sample(Wanted(200, 1, "3"))
    generated = sample.context + sample.questions[0].text
    blank = [
        re.sub(r"in line .+\?", "in line KEY?", LINE.sub("line KEY: <VALUE>\n", prompt))
        for prompt in (generated, rows()[0]["prompt"])
    ]
    assert blank[0] == blank[1]


@needs_longeval
def test_longeval_s_file_is_read_whole():
    samples = read_longeval(LONGEVAL / "lines" / "200_lines.jsonl")
    assert len(samples) == 50
    for sample, row in zip(samples, rows(), strict=True):
        (question,) = sample.questions
        assert sample.context + question.text == row["prompt"]
        assert question.expected == (str(row["expected_number"]),)
        assert question.text.startswith("\nNow the record is over.")
        key, value = row["random_idx"][0], row["expected_number"]
        assert question.answer == f"The <REGISTER_CONTENT> in line {key} is <{value}>."
        assert LINE.findall(sample.context)[row["random_idx"][1]] == (key, str(value))


@needs_longeval
@pytest.mark.parametrize("count", [200, 300, 400, 500, 600, 680])
def test_the_score_is_longeval_s_on_every_published_answer(count):
    """`Parsed` is upstream's reading of an answer; the file's last line its accuracy."""
    path = LONGEVAL / "predictions" / "longchat-7b-16k" / f"{count}_response.txt"
    pattern = r"Label: (\d+), Predict: (.*?), Parsed: (-?\d+), prompt length: \d+$"
    text = path.read_text("utf-8")
    answers = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
    right = []
    for label, said, parsed in answers:
        scores = Lines().score(said, asked(label))
        assert scores["last"] == (label == parsed)
        assert Lines().score(said, asked(parsed))["last"]
        right.append(scores["last"])
    assert len(right) == 50
    published = re.search(r"Accuracy: ([\d.]+)\s*$", text)
    assert sum(right) / 50 == float(published[1])


@pytest.mark.parametrize(
    ("said", "last", "first", "contains"),
    [
        ("The <REGISTER_CONTENT> in line big-cat is <4152>.", True, True, True),
        ("4152", True, True, True),
        ("<4152>. Line 7 is another.", False, True, True),
        ("Line 7 is <4152>", True, False, True),
        ("Of 7 lines <4152> is line 9", False, False, True),
        ("41520", False, False, False),
        ("4 152", False, False, False),
        ("04152", True, True, True),
        ("none at all", False, False, False),
        ("", False, False, False),
    ],
)
def test_last_first_and_contains_differ_as_documented(said, last, first, contains):
    assert Lines().score(said, asked("4152")) == {
        "last": last,
        "first": first,
        "contains": contains,
    }


def test_keys_and_values_do_not_repeat_in_5000_lines():
    found = LINE.findall(Lines().sample(Wanted(5000, 1, "0")).context)
    keys, values = zip(*found, strict=True)
    assert len(set(keys)) == len(set(values)) == 5000
    assert all(1 <= int(value) <= 50_000 for value in values)
    assert all(re.fullmatch(r"\S+-\S+", key) for key in keys)


def test_more_lines_than_values_still_have_keys_of_their_own():
    found = LINE.findall(Lines().sample(Wanted(50_001, 1, "0")).context)
    assert len({key for key, _ in found}) == 50_001


def test_the_answer_is_on_the_line_that_is_asked_for():
    sample = Lines().sample(Wanted(40, 8, "1"))
    known = dict(LINE.findall(sample.context))
    assert len(known) == 40
    asked = [re.search(r"in line (\S+)\? I need", q.text)[1] for q in sample.questions]
    assert len(set(asked)) == 8
    for key, question in zip(asked, sample.questions, strict=True):
        assert question.expected == (known[key],)
        assert question.answer == f"The <REGISTER_CONTENT> in line {key} is <{known[key]}>."
        assert Lines().score(question.answer, question) == {
            "last": True,
            "first": True,
            "contains": True,
        }


def test_the_same_seed_gives_the_same_sample():
    assert Lines().sample(Wanted(30, 4, "a")) == Lines().sample(Wanted(30, 4, "a"))
    assert Lines().sample(Wanted(30, 4, "a")) != Lines().sample(Wanted(30, 4, "b"))


def test_the_context_does_not_depend_on_how_many_questions_are_asked():
    assert Lines().sample(Wanted(30, 1, "0")).context == Lines().sample(Wanted(30, 8, "0")).context


def test_no_more_questions_are_asked_than_there_are_lines():
    assert len(Lines().sample(Wanted(3, 8, "0")).questions) == 3


def test_a_task_is_found_by_name_or_refused():
    assert isinstance(task("lines"), Lines)
    with pytest.raises(LongsealError, match=r"'line'.*lines"):
        task("line")


@pytest.mark.parametrize(
    "text", ["not json\n", '{"prompt": "x"}\n', "[1]\n", '{"prompt": "x", "random_idx": 3}\n']
)
def test_a_file_that_is_not_longeval_s_is_refused(tmp_path, text):
    (tmp_path / "file.jsonl").write_text(text)
    with pytest.raises(LongsealError, match=r"file\.jsonl, line 1: "):
        read_longeval(tmp_path / "file.jsonl")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(LongsealError, match="cannot be read"):
        read_longeval(tmp_path / "file.jsonl")
