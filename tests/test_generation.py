"""Answers are the model's own greedy ones, however many questions share a context."""

from dataclasses import replace

import pytest
import tiny
import torch
from transformers import GenerationConfig

from longseal.models.generation import generate
from longseal.models.shared_context import shares_context
from longseal.tasks import Sample
from longseal.tasks.prompt import EncodedSample

NAMES = ["llama", "gpt2", "mistral"]
NEVER = [1]  # EOS, which these models are not likely to say
SAMPLE = tiny.encoded(context=130, blocks=((5, 1), (11, 1), (3, 1), (7, 1)))


def greedy(network, sample, count, ends):
    """Plain transformers, one prompt at a time."""
    answers = []
    for question in sample.questions:
        row = torch.tensor([[*sample.context, *question]])
        said = network.generate(
            input_ids=row,
            attention_mask=torch.ones_like(row),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )[0, row.shape[1] :].tolist()
        stop = [i for i, token in enumerate(said) if token in ends]
        answers.append(said[: stop[0]] if stop else said)
    return answers


def answers_of(model, samples, count, ends):
    """Each sample's answers, in the order of its questions; every one is given once."""
    given = list(generate(model, samples, max_new_tokens=count, stop_tokens=ends))
    found = {(answer.sample, answer.question): answer.tokens for answer in given}
    assert len(found) == len(given) == sum(len(sample.questions) for sample in samples)
    return [[found[s, q] for q in range(len(one.questions))] for s, one in enumerate(samples)]


def ours(model, count, ends, sample=SAMPLE):
    (answers,) = answers_of(model, [sample], count, ends)
    return answers


@pytest.mark.parametrize("name", NAMES)
def test_answers_equal_plain_greedy_generation(loaded, plain, name):
    expected = greedy(plain(name), SAMPLE, 12, NEVER)
    assert ours(loaded(name), 12, NEVER) == expected
    assert len({tuple(answer) for answer in expected}) == 4


@pytest.mark.parametrize("name", NAMES)
def test_stop_tokens_end_answers_each_at_its_own_time(loaded, plain, name):
    free = greedy(plain(name), SAMPLE, 12, NEVER)
    ends = sorted({free[0][3], free[2][7]})
    answers = ours(loaded(name), 12, ends)
    assert answers == greedy(plain(name), SAMPLE, 12, ends)
    assert len(answers[0]) <= 3
    assert not any(end in answer for end in ends for answer in answers)
    assert len({len(answer) for answer in answers}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_may_be_empty(loaded, plain, name):
    first = greedy(plain(name), SAMPLE, 1, NEVER)[0]
    assert ours(loaded(name), 4, first)[0] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_no_longer_than_it_may_be(loaded, name):
    assert {len(answer) for answer in ours(loaded(name), 3, NEVER)} == {3}


@pytest.mark.parametrize("name", NAMES)
def test_one_question_alone_is_answered_as_among_others(loaded, name):
    among = ours(loaded(name), 6, NEVER)
    for index, question in enumerate(SAMPLE.questions):
        one = replace(SAMPLE, questions=(question,))
        assert ours(loaded(name), 6, NEVER, one) == [among[index]]


SAMPLES = [
    SAMPLE,
    replace(tiny.encoded(context=57), context=tuple(tiny.tokens(57, 3))),
    replace(tiny.encoded(context=110, blocks=((2, 1),)), context=tuple(tiny.tokens(110, 4))),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("together", [1, 190, 10_000])
def test_several_contexts_at_once_are_answered_as_each_alone(
    loaded, plain, name, together, monkeypatch
):
    monkeypatch.setattr("longseal.models.generation.TOGETHER", together)
    free = [greedy(plain(name), sample, 8, NEVER) for sample in SAMPLES]
    assert answers_of(loaded(name), SAMPLES, 8, NEVER) == free
    ends = sorted({free[0][1][2], free[1][0][5], free[2][0][3]})
    expected = [greedy(plain(name), sample, 8, ends) for sample in SAMPLES]
    assert answers_of(loaded(name), SAMPLES, 8, ends) == expected


def test_an_answer_is_given_as_soon_as_it_is_whole(llama, plain):
    free = greedy(plain("llama"), SAMPLE, 12, NEVER)
    ends = sorted({free[0][3], free[2][7]})
    lengths = [len(answer) for answer in greedy(plain("llama"), SAMPLE, 12, ends)]
    given = generate(llama, [SAMPLE], max_new_tokens=12, stop_tokens=ends)
    first = next(given)
    assert len(first.tokens) == min(lengths)
    row = torch.tensor([tiny.tokens(30)])  # the network is free in between
    torch.testing.assert_close(
        llama.network(input_ids=row).logits, plain("llama")(input_ids=row).logits
    )
    assert sorted(len(answer.tokens) for answer in [first, *given]) == sorted(lengths)


def test_nothing_asked_is_nothing_answered(llama):
    assert list(generate(llama, [], max_new_tokens=3, stop_tokens=NEVER)) == []


@pytest.mark.parametrize("name", NAMES)
def test_generation_settings_of_the_model_do_not_leak_in(loaded, name, monkeypatch):
    network = loaded(name).network
    expected = ours(loaded(name), 8, NEVER)
    theirs = GenerationConfig(
        do_sample=True,
        temperature=3.0,
        top_k=7,
        num_beams=3,
        repetition_penalty=3.0,
        no_repeat_ngram_size=1,
        max_length=20,
        min_new_tokens=2,
        suppress_tokens=sorted({token for answer in expected for token in answer}),
        forced_eos_token_id=5,
        eos_token_id=expected[0][1],
        num_return_sequences=2,
    )
    monkeypatch.setattr(network, "generation_config", theirs)
    assert ours(loaded(name), 8, NEVER) == expected
    assert network.generation_config is theirs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_attention_implementation_is_put_back(loaded, name, implementation):
    network = loaded(name).network
    before = network.config._attn_implementation
    network.set_attn_implementation(implementation)
    try:
        ours(loaded(name), 2, NEVER)
        assert network.config._attn_implementation == implementation
    finally:
        network.set_attn_implementation(before)


def test_an_exception_puts_the_attention_implementation_back(llama):
    assert shares_context(llama.network)
    before = llama.network.config._attn_implementation
    with pytest.raises(IndexError):
        ours(llama, 2, NEVER, EncodedSample((5, 6), ((10**6,),), ((1,),), Sample("", ())))
    assert llama.network.config._attn_implementation == before


@pytest.mark.parametrize("name", NAMES)
def test_answers_with_scales_are_those_of_the_scaled_model(loaded, plain, name):
    model = loaded(name)
    scales = tiny.random_scales(model, "channel")
    with scales.attached(model.network):
        answers = ours(model, 6, NEVER)
    with scales.attached(plain(name)):
        assert answers == greedy(plain(name), SAMPLE, 6, NEVER)
    assert answers != ours(model, 6, NEVER)
