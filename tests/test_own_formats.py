"""A format is found in one example, kept to the letter, and all content is drawn anew."""

import csv
import io
import json
import re

import pytest

from longseal.errors import LongsealError
from longseal.tasks.own.examples import Example
from longseal.tasks.own.induce import induce
from longseal.tasks.own.leaks import survivors
from longseal.tasks.own.task import OwnTask
from longseal.tasks.sample import ExhaustedError, Sample, Wanted

PEOPLE = ["Bob Smith", "Anna Jones", "Carl Weber", "Dora Lee", "Eve Adams", "Finn Olsen"]
TOTALS = [1204.5, 88.25, 913.75, 45.0, 2310.99, 640.1]
NOTES = [
    "Paid by wire a week before the end of the month",
    "Customer asked for two payments because of the long delay",
    "none",
]
INVOICES = [
    {
        "id": f"INV-{417 * i + 23:04d}",
        "customer": name,
        "date": f"2024-0{i + 1}-1{i}",
        "total": total,
        "note": NOTES[i % 3],
    }
    for i, (name, total) in enumerate(zip(PEOPLE, TOTALS, strict=True))
]
LOG = "\n".join(
    f"2024-05-01 07:1{i}:0{i} {'WARN' if i % 2 else 'INFO'} user={name.split()[0].lower()} "
    f"ip=10.0.{i}.7 session={0x3F0A7C11 + 7919 * 7919 * i:08x} logged in from the office"
    for i, name in enumerate(PEOPLE)
)
PARTS = ["Bolt", "Hex nut", "Washer", "Pin", "Long screw", "Rivet"]
STOCK = "sku,name,material,qty,price\n" + "\n".join(
    f"{'ABCDEF'[i]}-{137 * i + 12:03d},{part},{'brass' if i % 2 else 'steel'},{91 * i + 7},{i}.5{i}"
    for i, part in enumerate(PARTS)
)
CITIES = ["Rome", "Oslo", "Paris", "New York", "Lima", "Kyiv"]
TABLE = "| part | city | qty |\n|---|---|---|\n" + "\n".join(
    f"| {part} | {city} | {73 * i + 11} |"
    for i, (part, city) in enumerate(zip(PARTS, CITIES, strict=True))
)
CHINESE = "\n".join(
    f"订单编号：DD{77431 * i + 10203:06d}，客户：{name}，金额：{811 * i + 350}元，"
    f"日期：2024年{i + 1}月{i + 3}日"
    for i, name in enumerate(["王伟", "李小龙", "张敏", "刘洋"])
)
CARDS = "\n\n".join(
    f"Name: {name}\nRole: {role}\nPhone: +1 555 {100 + 61 * i} {2000 + 733 * i}"
    for i, (name, role) in enumerate(
        zip(PEOPLE, ["Clerk", "Head of sales", "Driver", "Cook", "Guard", "Pilot"], strict=True)
    )
)
ITEMS = "<list>\n" + "\n".join(
    f'  <item id="{8123 + 37 * i * i}"><name>{name}</name><age>{21 + 7 * i % 40}</age></item>'
    for i, name in enumerate(PEOPLE)
)
ITEMS += "\n</list>"
STORY = (
    "The harbour was quiet that morning, and gulls circled over the nets. The old men mended them "
    "without a word. The code of the lighthouse in Port Ellen is 48213. Nobody had asked for it in "
    "years, and the keeper wrote little about the sea in his diary."
)
CHAT = (("system", "You read stock lists."), ("user", "Ready?"), ("assistant", "Yes."))

FORMATS = {
    "invoices": Example(
        json.dumps(INVOICES), "\n\nWhat does INV-0440 come to?", "INV-0440 comes to 88.25."
    ),
    "indented invoices": Example(
        json.dumps(INVOICES, indent=2), "\n\nWhen was Dora Lee billed?", "2024-04-13"
    ),
    "log": Example(LOG, "\n\nFrom which IP did user dora log in?", "10.0.3.7"),
    "inventory": Example("Stock:\n" + STOCK, "\n\nHow many of C-286 are there?", "189"),
    "table": Example(TABLE + "\n\nEnd of the table.", "\n\nHow many are in Paris?", "157"),
    "chinese": Example(CHINESE, "\n\n客户张敏的订单编号是什么？", "DD165065"),
    "cards": Example(CARDS, "\n\nWhat is the phone number of Eve Adams?", "+1 555 344 4932"),
    "lines of cards": Example(
        CARDS.replace("\n\n", "\n"), "\n\nWhich number has Carl Weber?", "+1 555 222 3466"
    ),
    "elements": Example(ITEMS, "\n\nHow old is Anna Jones?", "Anna Jones is 28."),
    "chat": Example(STOCK, "\nHow many of C-286 are there?", "189", before=CHAT),
    "prose": Example(STORY, "\n\nWhat is the code of the lighthouse in Port Ellen?", "48213"),
}
RECORDS = [name for name in FORMATS if name != "prose"]


def task(name):
    return OwnTask(name, induce([FORMATS[name]]).format)


def context(name, size=6, **wanted):
    return task(name).sample(Wanted(size, **wanted)).context


def original(example):
    question = OwnTask("", induce([example]).format).sample(Wanted(6)).questions[0]
    return Sample(example.context, (question,))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_asked_stands_in_the_passage_that_stands_once(name):
    sample = task(name).sample(Wanted(60, questions=2, seed="a"))
    assert len(sample.questions) == 2
    for question in sample.questions:
        assert sample.context.count(question.evidence) == 1
        assert all(value in question.evidence for value in question.expected)
        assert all(value in question.answer for value in question.expected)
    asked, other = (question.text for question in sample.questions)
    assert asked != other


@pytest.mark.parametrize("name", FORMATS)
def test_no_eight_words_of_an_example_are_left(name):
    example = FORMATS[name]
    induced = induce([example])
    made = [OwnTask(name, induced.format).sample(Wanted(40, seed=str(i))) for i in range(5)]
    assert not survivors(induced.format, [example], made)
    # The check sees them where nothing was drawn anew.
    assert survivors(induced.format, [example], [original(example)])


@pytest.mark.parametrize("name", FORMATS)
def test_the_question_and_its_answer_keep_their_words(name):
    example = FORMATS[name]
    (question,) = task(name).sample(Wanted(30)).questions

    def words(text):
        return re.findall(r"\b[a-z]+\b", text)

    if name != "log":  # the name in its question is in small letters
        assert words(question.text) == words(example.question)
    assert words(question.answer) == words(example.answer)
    assert question.text != example.question
    assert question.answer != example.answer


def test_json_stays_json_of_the_same_fields():
    for name in ("invoices", "indented invoices"):
        made = json.loads(context(name, 40))
        assert len(made) == 40
        assert {tuple(row) for row in made} == {tuple(INVOICES[0])}
        assert len({row["id"] for row in made}) == 40
        assert all(re.fullmatch(r"INV-\d{4}", row["id"]) for row in made)
        dates = [row["date"] for row in made]
        assert dates == sorted(dates)  # they rise in the example
    assert context("indented invoices").startswith('[\n  {\n    "id": "INV-')


def test_log_lines_keep_their_pattern_and_their_levels():
    pattern = (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (WARN|INFO) user=[a-z]+ ip=\d+\.\d+\.\d+\.\d+ "
        r"session=[0-9a-f]{8} logged in from the office"
    )
    lines = context("log", 50).split("\n")
    assert len(lines) == 50
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert {re.fullmatch(pattern, line)[1] for line in lines} == {"WARN", "INFO"}


def test_a_csv_keeps_its_head_and_its_columns():
    text = context("inventory", 30)
    assert text.startswith("Stock:\nsku,name,material,qty,price\n")
    rows = list(csv.reader(io.StringIO(text)))[2:]
    assert len(rows) == 30
    assert all(re.fullmatch(r"[A-Z]-\d{3}", sku) for sku, *_ in rows)
    assert {row[2] for row in rows} == {"brass", "steel"}
    assert not {row[1] for row in rows} & set(PARTS)


def test_a_table_keeps_its_rule_and_what_stands_after_it():
    text = context("table", 9)
    assert text.startswith("| part | city | qty |\n|---|---|---|\n| ")
    assert text.endswith(" |\n\nEnd of the table.")
    assert text.count("\n| ") == 9


def test_ideographs_give_way_to_ideographs():
    lines = context("chinese", 20).split("\n")
    pattern = r"订单编号：DD\d{6}，客户：([一-鿿]{2,3})，金额：\d{3,4}元，日期：\d{4}年\d+月\d+日"
    assert all(re.fullmatch(pattern, line) for line in lines)
    assert len({re.fullmatch(pattern, line)[1] for line in lines}) == 20


def test_a_chat_keeps_its_earlier_turns():
    sample = task("chat").sample(Wanted(8))
    assert sample.before == CHAT
    assert sample.context.startswith("sku,name,material,qty,price\n")
    assert sample.questions[0].text.startswith("\nHow many of ")


def test_a_context_in_an_earlier_turn_is_drawn_there():
    example = Example("Read this.\n" + CARDS, "Number of Eve Adams?", "+1 555 344 4932",
                      before=(("system", "Read this.\n" + CARDS),), turn=0)  # fmt: skip
    made = OwnTask("", induce([example]).format).sample(Wanted(9))
    (role, text), (question,) = *made.before, made.questions
    assert (role, made.context) == ("system", "")
    assert text.startswith("Read this.\nName: ")
    assert question.evidence in text


def test_prose_gives_way_to_other_prose_and_the_needle_keeps_its_words():
    sample = task("prose").sample(Wanted(200, questions=3, depth=1.0))
    needles = re.findall(r"The code of the lighthouse in (\S+ \S+) is (\d{5})\.", sample.context)
    assert len(set(needles)) == 3
    assert not {"Port Ellen"} & {place for place, _ in needles}
    assert sample.context.endswith(sample.questions[0].evidence) or len(
        sample.context.rpartition(sample.questions[0].evidence)[2]
    ) < 0.2 * len(sample.context)
    assert "harbour" not in sample.context


def test_what_differs_between_examples_is_content_and_what_does_not_is_format():
    rows = [[("Ana", "Rome", 41), ("Ben", "Oslo", 37), ("Cleo", "Bern", 29)],
            [("Dov", "Haifa", 55), ("Ema", "Zagreb", 61)]]  # fmt: skip
    examples = [
        Example(
            f"Report of {office}\n"
            + "\n".join(f"{name} lives in {city}, aged {age}." for name, city, age in people),
            f"\n\nHow old is {people[1][0]}?",
            str(people[1][2]),
        )
        for office, people in zip(("Vienna", "Turin"), rows, strict=True)
    ]
    text = OwnTask("", induce(examples).format).sample(Wanted(7)).context
    head, *lines = text.split("\n")
    assert re.fullmatch(r"Report of \w+", head)
    assert head not in ("Report of Vienna", "Report of Turin")
    assert len(lines) == 7
    assert all(re.fullmatch(r"[\w-]+ lives in [\w-]+, aged \d\d\.", line) for line in lines)


def test_types_of_records_keep_their_order():
    lines = [
        line
        for i in range(5)
        for line in (f"INVOICE I-{i * 13 + 10} of {i * 97 + 100} EUR", f"PAID P-{i * 111 + 1234}")
    ]
    example = Example("\n".join(lines), "\n\nWhat was invoice I-36 about?", "294 EUR")
    text = OwnTask("", induce([example]).format).sample(Wanted(4)).context
    assert re.sub(r"\d+", "0", text).startswith("INVOICE I-0 of 0 EUR\nPAID P-0\nINVOICE I-0")


def test_types_of_records_without_an_order_keep_their_shares():
    came = [f"IN of crate-{i * i * 7 + 11}: {i * 37 % 90 + 10} kg" for i in range(8)]
    went = [f"Sent to {city} on 2024-05-0{i + 1}" for i, city in enumerate(CITIES[:4])]
    lines = [*came[:3], went[0], came[3], *went[1:3], *came[4:], went[3]]
    question, answer = "\n\nHow heavy was crate-39?", came[2].rpartition(": ")[2]
    form = induce([Example("\n".join(lines), question, answer)]).format
    made = OwnTask("", form).sample(Wanted(300)).context.split("\n")
    assert sum(line.startswith("IN of crate-") for line in made) == pytest.approx(200, abs=30)
    assert sum(line.startswith("Sent to ") for line in made) == pytest.approx(100, abs=30)


def test_a_value_is_found_before_its_unit():
    lines = [f"job {i * i * 31 + 105} took {i * 7 + 12}.{i}5ms" for i in (3, 1, 4, 2, 5)]
    example = Example("\n".join(lines), "\n\nHow long did job 136 take?", "It took 19.15ms")
    (question,) = OwnTask("", induce([example]).format).sample(Wanted(9)).questions
    assert re.fullmatch(r"It took \d\d\.\d\dms", question.answer)
    assert question.answer == f"It took {question.expected[0]}ms"


def test_a_line_unlike_the_others_is_there_only_when_asked_for():
    lines = LOG.split("\n")
    lines.insert(3, "ALERT: the door code of Berlin is 7319")
    example = Example("\n".join(lines), "\n\nWhat is the door code of Berlin?", "7319")
    sample = OwnTask("", induce([example]).format).sample(Wanted(30, questions=2, depth=0.5))
    assert sample.context.count("ALERT: the door code of ") == 2
    assert sample.context.split("\n")[14] in (q.evidence for q in sample.questions) or (
        sample.context.split("\n")[15] == sample.questions[0].evidence
    )


def test_a_number_of_records_in_the_text_before_them_stays_true():
    example = Example(
        "Here are 6 people.\n\n" + CARDS, "\n\nNumber of Dora Lee?", "+1 555 283 4199"
    )
    text = OwnTask("", induce([example]).format).sample(Wanted(17)).context
    assert text.startswith("Here are 17 people.\n\nName: ")
    assert text.count("Name: ") == 17


def test_the_same_wish_gives_the_same_sample_and_another_seed_another():
    made = [task("invoices").sample(Wanted(20, seed=seed)) for seed in ("a", "a", "b")]
    assert made[0] == made[1]
    assert made[0].context != made[2].context


def test_keys_stay_different_when_those_of_their_length_run_out():
    rows = "\n".join(f"box {i * 7 + 3}: {'abcdef'[i]}x{i * 171 + 101}" for i in (1, 4, 2, 5, 0, 3))
    example = Example(rows, "\n\nWhat is in box 17?", "cx443")
    text = OwnTask("", induce([example]).format).sample(Wanted(300)).context
    assert len({line.split(":")[0] for line in text.split("\n")}) == 300


def test_keep_makes_format_and_vary_makes_content():
    example = FORMATS["log"]
    kept = induce([example], keep=[r"session=\w+"])
    text = OwnTask("", kept.format).sample(Wanted(20)).context
    sessions = re.findall(r"session=(\w+)", text)
    assert len(sessions) == 20
    assert set(sessions) <= set(re.findall(r"session=(\w+)", LOG))
    varied = induce([example], vary=["the office"])
    text = OwnTask("", varied.format).sample(Wanted(20)).context
    assert "the office" not in text


def test_what_is_kept_of_an_id_leaves_the_rest_to_be_drawn():
    paths = [f"/api/{kind}/{n}" for n, kind in zip(range(4411, 9000, 777), "abcdef", strict=True)]
    rows = [f"took {7 * i + 12} ms for req-{i}q{i * 3} at {path}" for i, path in enumerate(paths)]
    example = Example("\n".join(rows), "\n\nHow long did req-2q6 take?", "26 ms")
    text = OwnTask("", induce([example], keep=["api/"]).format).sample(Wanted(30)).context
    assert len(re.findall("/api/", text)) == 30
    assert not any(path in text for path in paths)


@pytest.mark.parametrize("mark", ["no such text", "("])
def test_a_mark_that_matches_nothing_is_refused(mark):
    with pytest.raises(LongsealError, match=r"--keep .* (matches nothing|no regular expression)"):
        induce([FORMATS["log"]], keep=[mark])


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        ("What do they come to in all?", "9999.99", "nowhere in its context"),
        ("What is the price?", "2.52", "names nothing of the record"),
        ("Where is C-286, and since 2019?", "189 pieces by order 77441", "'77441'"),
    ],
)
def test_an_answer_that_cannot_be_made_anew_is_refused(question, answer, said):
    with pytest.raises(LongsealError, match=re.escape(said)):
        induce([Example(STOCK, question, answer)])


def test_a_context_with_too_few_different_keys_is_refused():
    rows = "\n".join(
        f"{day}: {n}" for day, n in zip(("07:08", "07:09", "09:10"), (4, 7, 9), strict=True)
    )
    form = induce([Example(rows, "\n\nWhat was at 07:09?", "7")]).format
    with pytest.raises(ExhaustedError, match="too few different keys"):
        OwnTask("times", form).sample(Wanted(20_000))


@pytest.mark.parametrize(
    ("said", "contains", "exact"),
    [
        ("INV-0001 comes to 88.25.", 1, 1),
        ("88.25", 1, 1),
        ("it is  88.25 dollars", 1, 0),
        ("88.25kg", 1, 0),
        ("188.25", 0, 0),
        ("88.255", 0, 0),
        ("none", 0, 0),
    ],
)
def test_the_expected_value_has_to_stand_in_the_prediction(said, contains, exact):
    found = task("invoices").sample(Wanted(3)).questions[0]
    question = type(found)("?", "INV-0001 comes to 88.25.", ("88.25",))
    assert task("invoices").score(said, question) == {"contains": contains, "exact": exact}
