"""What the model reads is what its template makes, token for token, in training and evaluation."""

import re

import pytest
import tiny
import torch

import longseal
from longseal.errors import LongsealError
from longseal.models.generation import generate
from longseal.models.load import LanguageModel
from longseal.tasks import Question, Sample, Wanted
from longseal.tasks.answered_row import answered_row
from longseal.tasks.fitting import check_lengths, check_window, fit
from longseal.tasks.lines import Lines
from longseal.tasks.prompt import Prompts

WITHOUT_BOS = tiny.TEMPLATE.replace("{{ bos_token }}", "")
SAMPLE = Lines().sample(Wanted(5, 3))


def adding_bos(template):
    """A tokenizer that begins every text with BOS of its own accord, as Llama's does."""
    from tokenizers.processors import TemplateProcessing

    made = tiny.tokenizer(template)
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B", special_tokens=[("<|bos|>", 0)]
    )
    assert made("x").input_ids[0] == made.bos_token_id
    return made


def prompts_of(model, tokenizer):
    return Prompts(
        LanguageModel(model.source, model.network, tokenizer, model.structure, model.window)
    )


TOKENIZERS = {
    "template with BOS": lambda: tiny.tokenizer(tiny.TEMPLATE),
    "template and tokenizer with BOS": lambda: adding_bos(tiny.TEMPLATE),
    "template without BOS, tokenizer adds it": lambda: adding_bos(WITHOUT_BOS),
    "no template, tokenizer adds BOS": lambda: adding_bos(None),
}
WITHOUT = {
    "template without BOS": lambda: tiny.tokenizer(WITHOUT_BOS),
    "no template": lambda: tiny.tokenizer(None),
}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())
def test_every_prompt_has_exactly_one_bos_at_its_start(llama, tokenizer):
    tokenizer = tokenizer()
    encoded = prompts_of(llama, tokenizer).encode(SAMPLE)
    for question in encoded.questions:
        prompt = [*encoded.context, *question]
        assert prompt[0] == tokenizer.bos_token_id
        assert prompt.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("tokenizer", WITHOUT.values(), ids=WITHOUT.keys())
def test_a_model_that_uses_no_bos_gets_none(llama, tokenizer):
    tokenizer = tokenizer()
    encoded = prompts_of(llama, tokenizer).encode(SAMPLE)
    assert tokenizer.bos_token_id not in encoded.context


@pytest.mark.parametrize("template", [tiny.TEMPLATE, WITHOUT_BOS], ids=["BOS", "no BOS"])
def test_context_and_question_are_the_template_s_own_tokens(llama, template):
    tokenizer = tiny.tokenizer(template)
    encoded = prompts_of(llama, tokenizer).encode(SAMPLE)
    assert len(encoded.questions) == 3
    for part, question in zip(encoded.questions, SAMPLE.questions, strict=True):
        expected = tokenizer.apply_chat_template(
            [{"role": "user", "content": SAMPLE.context + question.text}],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=False,
        )
        assert [*encoded.context, *part] == expected


def test_without_a_template_a_prompt_is_the_text_and_a_line_break(llama):
    tokenizer = tiny.tokenizer(None)
    encoded = prompts_of(llama, tokenizer).encode(SAMPLE)
    for part, question in zip(encoded.questions, SAMPLE.questions, strict=True):
        text = f"{SAMPLE.context}{question.text}\n"
        assert [*encoded.context, *part] == tokenizer(text).input_ids


def test_the_context_is_all_that_prompts_share(llama):
    encoded = Prompts(llama).encode(SAMPLE)
    assert len({question[0] for question in encoded.questions}) > 1
    text = llama.tokenizer.decode(encoded.context)
    assert text.endswith("Tell me what is the <REGISTER_CONTENT> in line ")


def test_a_single_question_keeps_at_least_one_token(llama):
    encoded = Prompts(llama).encode(Sample("It is 7.\n", SAMPLE.questions[:1]))
    assert len(encoded.questions[0]) >= 1


def test_one_question_asked_twice_keeps_at_least_one_token_each(llama):
    question = Question("What is it? ", "It is 7.", ("7",))
    encoded = Prompts(llama).encode(Sample("It is 7.\n", (question, question)))
    assert encoded.questions[0] == encoded.questions[1]
    assert len(encoded.questions[0]) >= 1


def test_answers_end_with_the_template_s_end_of_turn_though_it_is_not_eos(llama):
    prompts = Prompts(llama)
    end = llama.tokenizer.convert_tokens_to_ids("<|end|>")
    assert end != llama.tokenizer.eos_token_id
    encoded = prompts.encode(SAMPLE)
    for answer, question in zip(encoded.answers, SAMPLE.questions, strict=True):
        assert list(answer) == [*llama.tokenizer(question.answer).input_ids, end]


def test_prompt_and_answer_are_the_template_s_own_whole_conversation(llama):
    encoded = Prompts(llama).encode(SAMPLE)
    parts = zip(encoded.questions, encoded.answers, SAMPLE.questions, strict=True)
    for part, answer, question in parts:
        whole = llama.tokenizer.apply_chat_template(
            [
                {"role": "user", "content": SAMPLE.context + question.text},
                {"role": "assistant", "content": question.answer},
            ],
            tokenize=True,
            return_dict=False,
        )
        ours = [*encoded.context, *part, *answer]
        assert whole[: len(ours)] == ours


def test_without_a_template_answers_end_with_eos(llama):
    tokenizer = tiny.tokenizer(None)
    encoded = prompts_of(llama, tokenizer).encode(SAMPLE)
    assert {answer[-1] for answer in encoded.answers} == {tokenizer.eos_token_id}


def test_an_answer_is_over_at_eos_and_at_the_end_of_turn(llama, monkeypatch):
    ids = llama.tokenizer.convert_tokens_to_ids(["<|eos|>", "<|end|>"])
    assert Prompts(llama).stop_tokens == sorted(ids)
    monkeypatch.setattr(llama.network.generation_config, "eos_token_id", [1, 9, 12])
    assert Prompts(llama).stop_tokens == sorted({*ids, 9, 12})


def test_a_tokenizer_without_any_end_is_refused(llama, monkeypatch):
    tokenizer = tiny.tokenizer(None)
    tokenizer.eos_token = None
    monkeypatch.setattr(llama.network.generation_config, "eos_token_id", None)
    with pytest.raises(LongsealError, match="no end-of-sequence"):
        prompts_of(llama, tokenizer).encode(SAMPLE)


@pytest.mark.parametrize("length", [700, 1000, 1777, 3000])
@pytest.mark.parametrize("questions", [1, 8])
def test_a_fitted_sample_is_at_most_the_length_and_within_one_line_of_it(llama, length, questions):
    prompts = Prompts(llama)
    encoded = fit(prompts, Lines(), length, questions, "seed")
    length -= Lines.max_new_tokens  # what the answer may take counts
    assert encoded.length <= length
    longest = max(map(len, re.findall(r"line .*\n", encoded.source.context)))
    slack = longest + 30  # and what one key is longer than another in the question
    assert encoded.length > length - 2 * slack
    assert len(encoded.questions) == min(questions, encoded.size)
    assert encoded.source.context.count("REGISTER_CONTENT is <") == encoded.size
    assert encoded.length == max(
        len(encoded.context) + len(question) for question in encoded.questions
    )


def test_one_more_line_would_not_fit(llama):
    prompts, seed = Prompts(llama), "one more"
    for length in (650, 1000, 1500):
        encoded = fit(prompts, Lines(), length, 1, seed)
        more = prompts.encode(Lines().sample(Wanted(encoded.size + 1, 1, seed)))
        length -= Lines.max_new_tokens
        assert encoded.length <= length
        assert more.length > length - 30  # keys differ by a few letters from draw to draw


def test_the_same_seed_gives_the_same_prompts(llama):
    one, same, other = (fit(Prompts(llama), Lines(), 900, 2, seed) for seed in "aab")
    assert one == same
    assert one.context != other.context


def test_a_length_that_is_too_short_is_refused_with_what_it_takes(llama):
    with pytest.raises(LongsealError, match=r"length 100 is too short.*takes \d\d\d tokens"):
        fit(Prompts(llama), Lines(), 100, 1, "seed")


def test_a_length_beyond_the_window_is_refused(llama):
    with pytest.raises(LongsealError, match=r"5000 is beyond .* 4096"):
        check_window(Lines(), [5000], llama.window)
    with pytest.raises(LongsealError, match=r"5000 is beyond .* 4096"):
        check_lengths(Prompts(llama), Lines(), [700, 5000], llama.window)
    with pytest.raises(LongsealError, match="too short"):
        check_lengths(Prompts(llama), Lines(), [700, 50], llama.window)


def rows_read(network, work):
    """The prompts that a network reads, row by row, as tokens."""
    seen = []
    embedding = network.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _m, args: seen.extend(args[0].tolist()))
    try:
        work()
    finally:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_the_prompt_that_is_trained_on_is_the_prompt_that_is_asked(loaded, name):
    model = loaded(name)
    encoded = Prompts(model).encode(Sample(SAMPLE.context, SAMPLE.questions[:1]))
    prompt = [*encoded.context, *encoded.questions[0]]
    trained = answered_row(encoded, torch.device("cpu")).row
    asked = rows_read(
        model.network,
        lambda: list(generate(model, [encoded], max_new_tokens=1, stop_tokens=[1])),
    )
    assert trained.tokens[0, : len(prompt)].tolist() == prompt
    assert [token for row in asked for token in row][-len(prompt) :] == prompt
    expected = [*prompt, *encoded.answers[0][:-1]]
    assert trained.tokens[0].tolist() == expected
    assert trained.positions[0].tolist() == list(range(len(expected)))


def test_the_window_is_what_the_model_says(loaded, tmp_path):
    assert loaded("llama").window == loaded("gpt2").window == 4096
    other = tiny.save(tmp_path / "other", tiny.LLAMA | {"max_position_embeddings": 640})
    assert longseal.load(other, device="cpu").window == 640
