"""MMLU is asked as published; the likeliest of four whole continuations is the answer."""

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch

from longseal.errors import LongsealError
from longseal.evaluation import compare
from longseal.evaluation.continuations import Continued, log_likelihoods
from longseal.evaluation.mmlu import evaluate_mmlu
from longseal.files import Log
from longseal.tasks.mmlu import LETTERS, Item, read_mmlu
from longseal.tasks.prompt import Prompts

DATA = Path(__file__).parents[2] / "shared" / "data" / "mmlu"
HEADER = "question,choice0,choice1,choice2,choice3,answer\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two subjects of eight questions, one with a header and numbers, one with neither."""
    made = tmp_path_factory.mktemp("mmlu")
    for part, count in (("dev", 5), ("test", 8)):
        (made / part).mkdir()
        rows = [f'"{part} {i}, ""why""?",a{i},b{i},"c\n{i}",d{i},' for i in range(count)]
        numbered = "".join(f"{row}{i % 4}\n" for i, row in enumerate(rows))
        lettered = "".join(f"{row}{LETTERS[i % 4]}\n" for i, row in enumerate(rows))
        (made / part / f"bird_song_{part}.csv").write_text(HEADER + numbered)
        (made / part / f"tides_{part}.csv").write_text(lettered)
    return made


def test_files_with_a_header_and_without_are_read_alike(folder):
    birds, tides = read_mmlu(folder)
    assert (birds.name, tides.name) == ("bird_song", "tides")
    assert birds.items == tides.items
    assert birds.items[2] == Item('test 2, "why"?', ("a2", "b2", "c\n2", "d2"), 2)
    assert len(birds.shots) == 5


def test_the_prompt_is_the_published_one(folder):
    birds = read_mmlu(folder)[0]
    assert birds.prompt(birds.items[0], 1) == (
        "The following are multiple choice questions (with answers) about  bird song.\n\n"
        'dev 0, "why"?\nA. a0\nB. b0\nC. c\n0\nD. d0\nAnswer: A\n\n'
        'test 0, "why"?\nA. a0\nB. b0\nC. c\n0\nD. d0\nAnswer:'
    )
    assert birds.prompt(birds.items[0]).count("Answer:") == 6


def test_the_published_files_are_read():
    if not DATA.exists():
        pytest.skip("the shared MMLU files are not here")
    for subject in read_mmlu(DATA):
        assert len(subject.shots) == 5
        assert len(subject.items) >= 100
        assert {item.letter for item in subject.items} == set(LETTERS)


@pytest.mark.parametrize(
    ("text", "said"),
    [("q,a,b,c,d,E\n", "row 1"), ("q,a,b,c,1\n", "row 1"), (HEADER, "is empty")],
)
def test_what_is_no_mmlu_is_refused(tmp_path, text, said):
    with pytest.raises(LongsealError, match="holds no MMLU"):
        read_mmlu(tmp_path)
    for part in ("dev", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / f"x_{part}.csv").write_text(text)
    with pytest.raises(LongsealError, match=said):
        read_mmlu(tmp_path)


def likelihood(network, tokens, count):
    """Worked out from one ordinary row."""
    with torch.no_grad():
        found = network(input_ids=torch.tensor([tokens])).logits[0].log_softmax(-1)
    return sum(found[i - 1, tokens[i]].item() for i in range(len(tokens) - count, len(tokens)))


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_likelihoods_are_those_of_whole_rows(loaded, plain, name):
    context, body = tiny.tokens(30), tiny.tokens(7, 1)
    asked = [
        Continued((*body, *tiny.tokens(count, 2 + i)), count)
        for i, count in enumerate((1, 1, 3, 2))
    ]
    found = log_likelihoods(loaded(name), context, asked)
    expected = [likelihood(plain(name), [*context, *a.tokens], a.count) for a in asked]
    assert found == pytest.approx(expected, rel=1e-3)
    assert len(set(found)) == 4


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_the_likeliest_letter_is_the_answer(loaded, plain, folder, name):
    model = loaded(name)
    prompts, found = Prompts(model), evaluate_mmlu(model, folder, questions=3)
    assert [case.group for case in found.cases] == ["bird song"] * 3 + ["tides"] * 3
    assert [case.context for case in found.cases] == [0, 2, 5] * 2
    for case in found.cases[:3]:
        subject = read_mmlu(folder)[0]
        text = subject.prompt(subject.items[case.context])
        likely = [
            likelihood(plain(name), prompts.tokens(f"{text} {letter}"), 1) for letter in LETTERS
        ]
        assert case.prediction == LETTERS[likely.index(max(likely))]
        assert case.expected == (subject.items[case.context].letter,)
        assert case.value == float(case.prediction == case.expected[0])


def test_fewer_questions_come_first_where_the_window_is_short(llama, folder):
    whole = evaluate_mmlu(llama, folder, questions=1).cases[0]
    cut = evaluate_mmlu(replace(llama, window=whole.tokens - 1), folder, questions=1).cases[0]
    shot = read_mmlu(folder)[0].shots[4]
    assert cut.tokens == whole.tokens - len(f"{shot.text} A\n\n")
    with pytest.raises(LongsealError, match="longer than the model's window of 50 tokens"):
        evaluate_mmlu(replace(llama, window=50), folder)


def test_flips_are_compared_question_by_question_and_kept(llama, folder, tmp_path):
    log = Log(tmp_path / "log.jsonl")
    base = evaluate_mmlu(llama, folder, log=log)
    with tiny.random_scales(llama, "channel", 1.5).attached(llama.network):
        tuned = evaluate_mmlu(llama, folder, variant="tuned", log=log)
    assert (tuned.cases[0].key, tuned.cases[0].prompt) != (base.cases[0].key, "")
    overall = compare(base, tuned)[-1]
    assert (overall.questions, overall.contexts) == (16, 16)
    assert overall.gained + overall.lost > 0
    ran = []
    hook = llama.network.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        assert evaluate_mmlu(llama, folder, log=Log(log.path)) == base
    finally:
        hook.remove()
    assert not ran


def test_no_number_is_no_answer(llama, folder):
    hook = llama.network.lm_head.register_forward_hook(lambda *args: args[2] * float("nan"))
    try:
        found = evaluate_mmlu(llama, folder, questions=2)
    finally:
        hook.remove()
    assert all((case.prediction, case.value) == ("", 0) for case in found.cases)


def test_the_command_compares_the_questions_of_all_subjects(
    capfd, checkpoint, llama, folder, tmp_path
):
    tiny.adapter_of(llama, seed=5).save(tmp_path / "adapter")
    code, shown, _ = tiny.outcome(
        capfd,
        *("mmlu", str(checkpoint("llama")), str(folder), "--questions", "3"),
        *("--adapter", str(tmp_path / "adapter")),
    )
    assert code == 0
    assert "6 questions" in " ".join(shown.split())
