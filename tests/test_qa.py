"""LongBench's and LV-Eval's items are asked as published."""

import json
from pathlib import Path

import pytest
import tiny

from longseal.errors import LongsealError
from longseal.tasks.qa import FAMILY
from longseal.tasks.qa.formats import FORMATS, STOP_WORDS
from longseal.tasks.sample import Material, NoMaterialError

DATA = Path(__file__).parents[2] / "shared" / "data"
LONGBENCH, LVEVAL = DATA / "longbench", DATA / "lveval"
E_SETS = ["qasper_e", "multifieldqa_en_e", "hotpotqa_e", "2wikimqa_e", "triviaqa_e"]
ROW = {
    "input": "Who?",
    "context": "Ada wrote it.",
    "answers": ["Ada", "Lovelace"],
    "length": 7,
    "dataset": "hotpotqa",
    "language": "en",
    "all_classes": None,
    "_id": "1",
}

needs_longbench = pytest.mark.skipif(
    not LONGBENCH.is_dir(), reason="LongBench's tables are not in ../shared/data/longbench"
)
needs_lveval = pytest.mark.skipif(
    not LVEVAL.is_dir(), reason="LV-Eval's constants are not in ../shared/data/lveval"
)


@pytest.fixture
def make(tmp_path):
    """A task from rows, each given as what it has other than ROW (None: a field left out)."""

    def made(*rows, variant="mixed"):
        path = tmp_path / "items.jsonl"
        whole = [{k: v for k, v in (ROW | row).items() if v is not None} for row in rows]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in whole]
        path.write_text("".join(lines), "utf-8")
        return FAMILY.make(variant, Material((path,)))

    return made


def only(task):
    """The one sample of a task and its one question."""
    (sample,) = task.samples
    (question,) = sample.questions
    return sample, question


@needs_longbench
def test_prompts_and_budgets_are_longbench_s():
    for name, table in (("prompt", "dataset2prompt"), ("max_new_tokens", "dataset2maxlen")):
        published = json.loads((LONGBENCH / f"{table}.json").read_text("utf-8"))
        ours = {k: getattr(f, name) for k, f in FORMATS.items() if not f.first_answer}
        assert len(ours) == 8
        assert ours == {dataset: published[dataset] for dataset in ours}


@needs_lveval
def test_prompts_budgets_gates_and_stop_words_are_lv_eval_s():
    published = json.loads((LVEVAL / "lveval_constants.json").read_text("utf-8"))
    ours = {k: f for k, f in FORMATS.items() if f.first_answer}
    assert set(ours) == set(published["DATASET_SELECTED"]) - {"dureader_mixup"}
    for dataset, format_ in ours.items():
        assert format_.prompt == published["DATASET_PROMPT"][dataset]
        assert format_.max_new_tokens == published["DATASET_MAXGEN"][dataset]
        assert format_.suffixes == tuple(f"_{n}" for n in published["DATASET_LENGTH_LEVEL"])
    for language in ("en", "zh"):
        assert STOP_WORDS[language] == set(published[f"ABANDON_WORDS_{language.upper()}"])


@pytest.mark.parametrize("dataset", FORMATS)
def test_context_and_question_are_the_published_prompt_byte_for_byte(make, dataset):
    row = {
        "context": "{input} שלום \u202bعالم\u202c 您好\r\n {context} {0} \u2028 👩\u200d🚀 e\u0301",
        "input": " {context}؟ 谁? ",
    }
    sample, question = only(make(row | {"dataset": dataset}))
    prompt = FORMATS[dataset].prompt.format(**row)  # as both benchmarks fill it
    assert sample.context + question.text == prompt
    assert sample.context.endswith(row["context"])
    encoded = tiny.prompts(None).encode(sample)
    assert tiny.prompts(None).decode(encoded.prompt(0)) == (
        prompt if prompt.endswith((":", "：")) or not sample.chat else prompt + "\n",
        0,
    )


def test_triviaqa_has_no_chat_template_and_the_others_have_one(make):
    for dataset in FORMATS:
        sample, question = only(make({"dataset": dataset}))
        bare = tiny.prompts().render(sample, question) == sample.context + question.text
        assert bare == (dataset == "triviaqa"), dataset


def test_questions_about_one_context_share_it_and_keep_their_order(make):
    first, second = "The first text. " * 9, "The second text."
    task = make(
        {"context": first, "input": "A?"},
        {"context": second, "input": "B?"},
        {"context": first, "input": "C?", "answers": ["c"]},
        {"context": first, "input": "D?", "dataset": "qasper"},
    )
    asked = [[q.text.split("Question: ")[1][0] for q in s.questions] for s in task.samples]
    assert asked == [["A", "C"], ["B"], ["D"]]
    shared = tiny.prompts().encode(task.samples[0])
    assert len(shared.context) > len(task.samples[0].context)
    assert [q.answer for q in task.samples[0].questions] == ["Ada", "c"]


def test_each_question_has_its_dataset_s_budget_and_the_task_the_largest(make):
    sets = ["hotpotqa", "qasper", "factrecall_en_64k"]
    task = make(*({"dataset": name} for name in sets))
    found = {
        q.fields["dataset"]: q.fields["max_new_tokens"] for s in task.samples for q in s.questions
    }
    assert found == {"hotpotqa": 32, "qasper": 128, "factrecall_en_64k": 16}
    assert task.max_new_tokens == 128
    assert make({}).max_new_tokens == 32


def test_longbench_e_is_counted_by_length(make):
    lengths = (3999, 4000, 7999, 8000)
    task = make(*({"dataset": "hotpotqa_e", "length": n} for n in lengths))
    assert [(s.group, len(s.questions)) for s in task.samples] == [
        ("0-4k", 1),
        ("4-8k", 2),
        ("8k+", 1),
    ]
    assert make({"length": 8000}).samples[0].group == ""


def test_several_datasets_are_counted_apart(make):
    sets = ("hotpotqa_e", "triviaqa", "loogle_SD_mixup_16k", "loogle_SD_mixup_32k")
    task = make(*({"dataset": name} for name in sets))
    assert [s.group for s in task.samples] == ["hotpotqa_e 0-4k", *sets[1:]]


def test_a_named_dataset_stands_in_where_rows_name_none(make):
    task = make({"dataset": None}, variant="triviaqa_e")
    assert task.name == "qa/triviaqa_e"
    sample, question = only(task)
    assert (sample.chat, sample.group) == (False, "0-4k")
    assert question.fields["dataset"] == "triviaqa_e"


@pytest.mark.parametrize(
    ("row", "named", "taken"),
    [
        ("hotpotqa", "hotpotqa_e", "hotpotqa_e"),
        ("hotpotqa_e", "hotpotqa", "hotpotqa_e"),
        ("cmrc_mixup_16k", "cmrc_mixup", "cmrc_mixup_16k"),
    ],
)
def test_the_fuller_of_two_names_is_taken(make, row, named, taken):
    assert only(make({"dataset": row}, variant=named))[1].fields["dataset"] == taken


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("qasper", "hotpotqa"),
        ("cmrc_mixup_16k", "cmrc_mixup_32k"),
        ("multifieldqa_en_mixup", "multifieldqa_en"),
    ],
)
def test_a_row_of_another_dataset_than_named_is_refused(make, row, named):
    with pytest.raises(LongsealError, match=rf"line 1: the row is of {row}, not of {named}"):
        make({"dataset": row}, variant=named)


def test_every_dataset_is_a_variant_and_lengths_may_follow():
    assert next(iter(FAMILY.variants)) == "mixed"
    assert set(FAMILY.variants) == {"mixed", *FORMATS, *E_SETS}
    assert "loogle_SD_mixup_256k" in FAMILY.variants
    assert FAMILY.variants["loogle_SD_mixup_256k"] == FAMILY.variants["loogle_SD_mixup"]
    for name in ("musique_e", "hotpotqa_16k", "loogle_SD_mixup_8k", "dureader", "gov_report"):
        assert name not in FAMILY.variants


@pytest.mark.parametrize(
    ("variant", "needs"), [("mixed", "answers and dataset: --data"), ("musique", "answers: --data")]
)
def test_without_a_file_what_it_should_hold_is_said(variant, needs):
    with pytest.raises(NoMaterialError, match=needs):
        FAMILY.make(variant, Material())


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"context": None}, r"no field 'context' \(fields there: input, answers"),
        ({"dataset": None}, r"no field 'dataset' .*--task qa/hotpotqa"),
        (
            {"dataset": "gov_report"},
            r"there are no questions called 'gov_report': choose from narrativeqa",
        ),
        ({"dataset": "dureader"}, r"the dataset dureader is left out: .*ROUGE-L"),
        (
            {"dataset": "dureader_mixup_16k"},
            r"the dataset dureader_mixup_16k is left out: .*ROUGE-L",
        ),
        ({"dataset": "qasper_e", "length": None}, r"no field 'length'"),
        ({"answers": []}, r"answers: .*at least 1"),
        ({"answers": ["  ", "Ada"]}, r"answers: the first is blank"),
        ({"answers": "Ada"}, r"answers: .*list"),
        ({"answers": ["Ada", 3]}, r"answers, number 2: .*string"),
        ({"input": " \n"}, r"input: it is blank"),
        ({"input": 3}, r"input: .*string"),
        ({"context": ""}, r"context: it is blank"),
        ({"length": "long"}, r"length: .*integer"),
        ({"answer_keywords": ["Ada"]}, r"answer_keywords: .*string"),
    ],
)
def test_a_malformed_row_is_refused_with_its_line(make, row, wrong):
    with pytest.raises(LongsealError, match=rf"items\.jsonl, line 2: {wrong}") as raised:
        make({}, row)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"input": "Who?"', "not JSON"),
        ('{"input": "Who?", "input": "What?"}', "'input' stands there twice"),
        ('["Who?"]', "not a JSON object"),
        (json.dumps(ROW | {"context": "\ud800"}), "is half a character"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, line, wrong):
    path = tmp_path / "items.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n{line}\n", "utf-8")
    with pytest.raises(LongsealError, match=rf"items\.jsonl, line 2: .*{wrong}"):
        FAMILY.make("mixed", Material((path,)))


def test_files_are_read_one_after_the_other(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(json.dumps(ROW | {"context": name}), "utf-8")
    task = FAMILY.make("mixed", Material((tmp_path / "two", tmp_path / "one")))
    assert [sample.context[-3:] for sample in task.samples] == ["two", "one"]
