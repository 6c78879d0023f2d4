"""A haystack is the user's text, or the built-in prose: as long as wanted, in any script."""

from random import Random

import pytest

from longseal.errors import LongsealError
from longseal.tasks.haystack import (
    Haystack,
    built_in,
    read_haystack,
    sentence_ends,
    unit_ends,
    units,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It rains, again.\n\nYes!", ["It", "rains,", "again.", "Yes!"]),
        ("雨下了。", ["雨", "下", "了", "。"]),
        ("東京は rain", ["東", "京", "は", "rain"]),
        ("ที่นี่", ["ที่", "นี่"]),  # two letters, each with a vowel and a tone above
        ("نزل المطر.", ["نزل", "المطر."]),
    ],
)
def test_units_are_words_or_characters_where_no_spaces_are_written(text, parts):
    ends = unit_ends(text)
    starts = [0, *ends[:-1]]
    assert [text[a:b].strip() for a, b in zip(starts, ends, strict=True)] == parts
    assert units(text) == len(parts)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One 2.5 two. “Three!” Four? Five", ["One 2.5 two.", "“Three!”", "Four?"]),
        ("雨。“停了吗？”没有！", ["雨。", "“停了吗？”", "没有！"]),
        ("نزل المطر. هل انتهى؟ نعم", ["نزل المطر.", "هل انتهى؟"]),
        ("वर्षा हुई। नाव आई", ["वर्षा हुई।"]),
    ],
)
def test_sentences_end_at_the_marks_of_their_script(text, sentences):
    ends = sentence_ends(text)
    starts = [0, *ends[:-1]]
    assert [text[a:b].strip() for a, b in zip(starts, ends, strict=True)] == sentences


@pytest.mark.parametrize("size", [0, 1, 7, 100, 5000])
def test_a_haystack_has_as_many_words_as_wanted_however_short_its_source(size):
    small = Haystack(("One two three. Four.", "Five six. Seven eight nine."))
    for haystack in (small, built_in()):
        for random in (None, Random(3)):
            assert units(haystack.text(size, random)) == size


def test_documents_stand_in_one_order_and_loop_in_others():
    haystack = Haystack(tuple(f"Document {i}." for i in range(10)))
    words = haystack.text(60).split()[1::2]
    loops = [words[i : i + 10] for i in (0, 10, 20)]
    assert sorted(loops[0]) == sorted(loops[1]) == sorted(loops[2])
    assert loops[0] != loops[1] != loops[2]
    assert haystack.text(60) == Haystack(haystack.documents).text(60)


def test_a_longer_haystack_begins_like_a_shorter_one():
    for seed in range(3):
        short, long = (built_in().text(size, Random(seed)) for size in (100, 60_000))
        assert long.startswith(short)


def test_a_random_haystack_starts_at_a_paragraph_or_where_there_is_one_at_a_sentence():
    paragraphs = Haystack(("One. Two.\n\nThree. Four.\n\nFive.",))
    sentences = Haystack(("One. Two. Three.",))
    for haystack, firsts in (
        (paragraphs, {"One.", "Three.", "Five."}),
        (sentences, {"One.", "Two.", "Three."}),
    ):
        assert {haystack.text(1, Random(seed)) for seed in range(40)} == firsts


def test_the_built_in_prose_is_many_paragraphs_of_whole_sentences():
    assert len(built_in().documents) > 20
    assert units("\n\n".join(built_in().documents)) > 30_000
    for document in built_in().documents:
        assert document.endswith((".", "!", "?", ".”", '."'))


def test_a_folder_s_texts_are_read_in_order_of_their_names(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.md", "a.txt", "sub/c.TXT", "d.pdf"):
        (tmp_path / name).write_text(f"This is {name}.")
    assert read_haystack(tmp_path).documents == (
        "This is a.txt.",
        "This is b.md.",
        "This is sub/c.TXT.",
    )


def test_control_characters_and_carriage_returns_are_dropped(tmp_path):
    file = tmp_path / "hay.txt"
    file.write_bytes("\ufeffOne\x00 two\x1b.\r\n\r\nThree\x85 four\tfive.".encode())
    assert read_haystack(file).documents == ("One two.\n\nThree four\tfive.",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("Es war schön.".encode("latin-1"), r"hay\.txt is not UTF-8"),
        ("Long enough. Really.".encode("utf-16"), r"hay\.txt is not UTF-8.*UTF-16"),
        (b"", r"hay\.txt holds no whole sentence"),
        (b"no sentence here", r"hay\.txt holds no whole sentence"),
        (b"\x00\x01\x02", r"hay\.txt holds no whole sentence"),
    ],
)
def test_what_is_no_prose_is_refused(tmp_path, data, message):
    (tmp_path / "hay.txt").write_bytes(data)
    with pytest.raises(LongsealError, match=message):
        read_haystack(tmp_path / "hay.txt")


def test_a_folder_without_texts_and_a_path_to_nothing_are_refused(tmp_path):
    with pytest.raises(LongsealError, match=r"no \.txt or \.md files"):
        read_haystack(tmp_path)
    with pytest.raises(LongsealError, match="cannot be read"):
        read_haystack(tmp_path / "nothing.txt")
