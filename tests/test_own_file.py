"""A task file is a task: drawn anew where it has a format, and asked as it is where it has none."""

import json

import pytest
import tiny
from test_own_formats import FORMATS, PEOPLE

from longseal.errors import LongsealError
from longseal.tasks.fitting import fit
from longseal.tasks.haystack import Haystack
from longseal.tasks.own.content import writes
from longseal.tasks.own.examples import Example, read_examples
from longseal.tasks.own.file import Header, read_task_file, write_task_file
from longseal.tasks.own.generate import check_examples, generate
from longseal.tasks.own.induce import induce
from longseal.tasks.own.report import as_json, describe
from longseal.tasks.own.task import OwnFile, OwnTask
from longseal.tasks.sample import Wanted


class Scripted:
    """A writer that says what it is told to, and keeps what it was asked."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []

    def write(self, instruction, seed):
        self.asked.append((instruction, seed))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


PROMPTS = tiny.prompts()
ROW = {"context": "The code is 7.", "question": "Which code?", "answer": "7"}


def made(name, **options):
    example = FORMATS[name]
    induced = induce([example])
    wanted = {"name": name, "samples": 3, "length": 4000, **options}
    return induced, generate(induced, [example], PROMPTS, **wanted)


def write(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_samples_have_the_length_that_was_asked_for(name):
    _, found = made(name)
    assert len({sample.context for sample in found.samples}) == 3
    assert all(0.95 * 4000 <= length <= 4000 for length in found.lengths)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_gives_the_task_that_it_was_made_with(name, tmp_path):
    induced, found = made(name, length=2500)
    path = tmp_path / "mine.jsonl"
    write_task_file(path, Header(name=name, format=induced.format), found.samples)
    read = read_task_file(path)
    assert isinstance(read, OwnTask)
    assert (read.name, read.metric) == ("mine", "contains")
    wanted = Wanted(30, questions=2, seed="x", depth=0.5)
    assert read.sample(wanted) == OwnTask("mine", induced.format).sample(wanted)
    assert fit(PROMPTS, read, 3000, 1, "y").length <= 3000


def test_the_format_holds_nothing_of_the_examples_but_format():
    for name in ("invoices", "cards", "elements"):
        text = induce([FORMATS[name]]).format.model_dump_json()
        assert not [word for person in PEOPLE for word in person.split() if word in text]
    assert "48213" not in induce([FORMATS["prose"]]).format.model_dump_json()
    assert "harbour" not in induce([FORMATS["prose"]]).format.model_dump_json()


def test_a_file_of_a_writer_has_its_samples_alone(tmp_path):
    _, found = made("chat")
    path = tmp_path / "written.jsonl"
    write_task_file(path, Header(name="written", writer="some-model"), found.samples)
    read = read_task_file(path)
    assert isinstance(read, OwnFile)
    assert read.samples == found.samples


def test_rows_of_the_user_s_own_are_asked_as_they_are(tmp_path):
    turns = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "The code is 7.\n\nWhich code?"},
        {"role": "assistant", "content": "7"},
    ]
    read = read_task_file(write(tmp_path / "own.jsonl", ROW, {"messages": turns}))
    plain, chat = read.samples
    for sample in (plain, chat):
        assert sample.context + sample.questions[0].text == "The code is 7.\n\nWhich code?"
        assert sample.questions[0].expected == ("7",)
        assert read.score("It is 7", sample.questions[0])["contains"] == 1
    assert chat.before == (("system", "Be short."),)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"longseal_task": 2, "name": "x"}, "longseal_task"),
        ({"longseal_task": 1, "name": "x", "colour": "red"}, "colour"),
        ({"longseal_task": 1, "name": "x"}, "neither a format nor samples"),
        ({"longseal_task": 1, "name": "x", "format": {}}, "format"),
    ],
)
def test_a_header_that_is_none_is_refused(row, said, tmp_path):
    with pytest.raises(LongsealError, match=said):
        read_task_file(write(tmp_path / "own.jsonl", row))


def test_a_format_that_refers_to_nothing_is_refused(tmp_path):
    form = induce([FORMATS["invoices"]]).format.model_dump(mode="json")
    form["asks"][0]["record"] = 5
    header = {"longseal_task": 1, "name": "x", "format": form}
    with pytest.raises(LongsealError, match=r"line 1: .*record type that is not there"):
        read_task_file(write(tmp_path / "own.jsonl", header))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"context": "a", "question": "b"}', "no field 'answer'"),
        ('{"context": "a", "question": "b", "answer": " "}', "answer is empty"),
        ('{"context": "a", "context": "b"}', "stands there twice"),
        ('{"context": 3, "question": "b", "answer": "c"}', "context is int"),
        ('{"messages": [{"role": "user", "content": "b"}]}', "the last two messages"),
        ('{"messages": "hello"}', "messages should be a list"),
        ("hello", "not JSON"),
    ],
)
def test_an_example_that_is_none_is_refused_with_its_line(line, said, tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + line + "\n")
    with pytest.raises(LongsealError, match=rf"line 2: .*{said}"):
        read_examples(path)


def test_an_example_longer_than_the_window_is_refused():
    with pytest.raises(LongsealError, match=r"example 1 takes .* window of 100"):
        check_examples([FORMATS["log"]], PROMPTS, 100)


def test_content_that_comes_back_is_refused():
    """The story's own sentences as prose: what is drawn is what was there."""
    example = FORMATS["prose"]
    same = Haystack((example.context.replace("Port Ellen", "Rome"),))
    with pytest.raises(LongsealError, match=r"left in what was made .*--vary"):
        generate(
            induce([example]), [example], PROMPTS, name="x", samples=1, length=2000, haystack=same
        )


def test_a_writer_writes_the_names_and_sentences_of_what_is_asked_for():
    writer = Scripted("Zebulon")
    example = Example(FORMATS["cards"].context, "\n\nWho has number 344 4932?", "Eve Adams")
    task = OwnTask("x", induce([example]).format, writes=writes(writer))
    sample = task.sample(Wanted(20))
    assert sample.questions[0].expected == ("Zebulon Zebulon",)
    assert sample.context.count("Zebulon Zebulon") == 1
    asked = len(writer.asked)
    assert task.sample(Wanted(30)).questions[0].answer == "Zebulon Zebulon"
    assert len(writer.asked) == asked  # written once
    assert all("____" in instruction for instruction, _ in writer.asked)
    assert len({seed for _, seed in writer.asked}) == asked


def test_a_reply_that_is_no_content_is_asked_for_again_and_then_refused():
    example = Example(FORMATS["cards"].context, "\n\nWho has number 344 4932?", "Eve Adams")
    form = induce([example]).format
    better = writes(Scripted("Sure! Here is\na name", "Bob and Ann", "R2D2", "zebulon"))
    said = OwnTask("x", form, writes=better).sample(Wanted(9)).questions[0].answer
    assert said.startswith("Zebulon ")
    with pytest.raises(LongsealError, match="asked 4 times for a person's first name"):
        OwnTask("x", form, writes=writes(Scripted("I am not able to"))).sample(Wanted(9))


def test_the_report_says_what_is_format_and_what_is_content():
    found = as_json(induce([FORMATS["inventory"]]))
    (record,) = (part for part in found["parts"] if part["part"] == "record 1")
    assert record["literals"] == ("", ",", ",", ",", ",", "")
    said = [slot["content"] for slot in record["slots"]]
    assert said[0].startswith("<A-###>")
    assert said[2] == "<one of brass, steel (format)>"
    assert describe(
        induce([FORMATS["log"]]).format.records[0].template.slots[0].shapes[0].parts[0]
    ) == ("date like 2024-03-05 07:08:09, rising")
