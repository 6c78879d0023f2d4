"""Questions on documents: RULER's format, whole documents, gold ones anywhere."""

import json
import re

import pytest
from ruler_samples import hotpotqa, prompt, sample, squad, task

from longseal.errors import LongsealError
from longseal.tasks.sample import ExhaustedError


def documents(made):
    found = re.split(r"(?:^|\n\n)Document (\d+):\n", made.context.split("documents.\n\n")[1])
    assert [int(number) for number in found[1::2]] == list(range(1, len(found) // 2 + 1))
    return found[2::2]


def qa(found, question):
    texts = "\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(found, 1))
    return (
        "Answer the question based on the given documents. Only give me the answer and do not "
        "output any other words.\n\nThe following are given documents.\n\n"
        f"{texts}\n\nAnswer the question based on the given documents. Only give me the answer "
        f"and do not output any other words.\n\nQuestion: {question} Answer:"
    )


def test_a_question_of_squad(tmp_path):
    file = squad(tmp_path)
    made = sample("qa_1", 100, "0", file)
    (question,) = made.questions
    gold = question.expected[0]
    assert prompt(made) == qa(documents(made), f"Which paragraph is {gold}?")
    assert question.expected == (gold, gold.replace("-", " dash "))
    assert question.answer == f" {gold}"
    known = {p["context"] for a in json.loads(file.read_text())["data"] for p in a["paragraphs"]}
    assert set(documents(made)) <= known
    assert sum(text.startswith(f"Paragraph {gold}.") for text in documents(made)) == 1


def test_a_question_of_hotpotqa_has_all_its_documents(tmp_path):
    made = sample("qa_2", 12, "0", hotpotqa(tmp_path))
    (question,) = made.questions
    number = question.expected[0].removeprefix("Name ")
    found = documents(made)
    assert prompt(made) == qa(found, f"Who is number {number}?")
    for letter in "abc":
        title = f"{number}{letter}"
        assert f"Title {title}\nSentence one of {title}. Sentence two." in found


def test_the_gold_document_stands_anywhere(tmp_path):
    """It had one place in all samples with as many documents."""
    file = squad(tmp_path)
    places = set()
    for seed in range(60):
        made = sample("qa_1", 120, str(seed), file)
        found = documents(made)
        gold = made.questions[0].expected[0]
        place = next(i for i, text in enumerate(found) if text.startswith(f"Paragraph {gold}."))
        places.add((len(found), place))
    counts = [count for count, _ in places]
    assert max(map(counts.count, counts)) >= 3


def test_documents_of_the_same_article_come_first(tmp_path):
    made = sample("qa_1", 500, "0", squad(tmp_path, paragraphs=20))
    article = made.questions[0].expected[0].split("-")[0]
    assert len(documents(made)) > 1
    assert all(text.startswith(f"Paragraph {article}-") for text in documents(made))


@pytest.mark.parametrize("size", [20, 57, 133, 214])
def test_whole_documents_fill_what_is_wanted(tmp_path, size):
    made = sample("qa_1", size, "1", squad(tmp_path))
    gold = made.questions[0].expected[0]
    others = [text for text in documents(made) if not text.startswith(f"Paragraph {gold}.")]
    words = sum(len(f"Document 1: {text}".split()) for text in others)
    assert 0.97 * size - 1 < words <= size


def test_no_document_stands_twice(tmp_path):
    found = documents(sample("qa_1", 300, "0", squad(tmp_path)))
    assert len(set(found)) == len(found) > 10


def test_tuning_asks_about_texts_that_no_evaluation_asks_about(tmp_path):
    for name, file in (("qa_1", squad(tmp_path)), ("qa_2", hotpotqa(tmp_path))):
        tuned, tested = (
            {
                sample(name, 40, str(seed), file, training=training, questions=4).questions[0].text
                for seed in range(60)
            }
            for training in (True, False)
        )
        assert tuned.isdisjoint(tested)
        assert len(tuned | tested) == (20 if name == "qa_1" else 12)


def test_a_file_is_exhausted(tmp_path):
    with pytest.raises(ExhaustedError, match=r"dev-v2\.0\.json has only 20 documents"):
        sample("qa_1", 100_000, "0", squad(tmp_path))


def test_squad_1_has_no_impossible_questions(tmp_path):
    path = squad(tmp_path)
    data = json.loads(path.read_text())
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [
                {k: q[k] for k in ("question", "answers")} for q in paragraph["qas"]
            ]
    path.write_text(json.dumps(data))
    assert sample("qa_1", 40, "0", path).questions[0].text.count("Which paragraph") == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"0\.paragraphs\.0\.context is not"),
        ({"data": []}, "fewer than two texts"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, data, said):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    with pytest.raises(LongsealError, match=rf"broken\.json .*{said}"):
        task("qa_1", path)


def test_files_of_other_tasks_may_stand_beside(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    made = task("qa_2", tmp_path / "other.jsonl", squad(tmp_path), hotpotqa(tmp_path))
    assert made.name == "ruler/qa_2"
