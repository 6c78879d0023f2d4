"""Answers are the model's own greedy ones, however many questions share a context."""

import gc
from dataclasses import replace
from time import monotonic, sleep
from types import SimpleNamespace

import pytest
import tiny
import torch
import zoo
from transformers import AutoModelForCausalLM, GenerationConfig

import longseal
from longseal.models import shared_context
from longseal.models.arguments import vocabulary_size
from longseal.models.generation import generate
from longseal.models.packed_row import Memory
from longseal.models.padded_rows import runs_together
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


def asked(context, *lengths, seed=0):
    questions = tuple(tuple(tiny.tokens(n, seed + 50 + n)) for n in lengths)
    return replace(SAMPLE, context=tuple(context), questions=questions)


HAY, NEEDLE = tiny.tokens(400, 8), tiny.tokens(9, 9)
GRID = [asked(HAY[:d] + NEEDLE + HAY[d:], 5, 8, seed=d) for d in (0, 100, 200, 300, 400)]


def tokens_run(network, work):
    """How many tokens go through the network."""
    seen = []
    embedding = network.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _m, args: seen.append(args[0].numel()))
    try:
        work()
    finally:
        hook.remove()
    return sum(seen)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("together", [1, 1000, 10_000])
@pytest.mark.parametrize("queries", [7, 256])
def test_a_grid_of_depths_is_answered_as_each_prompt_alone(
    loaded, plain, name, together, queries, monkeypatch
):
    monkeypatch.setattr("longseal.models.generation.TOGETHER", together)
    monkeypatch.setattr("longseal.models.few_queries.QUERIES", queries)
    shuffled = [GRID[i] for i in (2, 0, 4, 1, 3)]
    expected = [greedy(plain(name), sample, 5, NEVER) for sample in shuffled]
    assert answers_of(loaded(name), shuffled, 5, NEVER) == expected
    assert len({tuple(answer) for answers in expected for answer in answers}) > 5


@pytest.mark.parametrize("together", [1, 10_000])
def test_a_grid_of_depths_runs_what_contexts_begin_with_once(llama, together, monkeypatch):
    monkeypatch.setattr("longseal.models.generation.TOGETHER", together)
    assert shares_context(llama.network)
    run = tokens_run(llama.network, lambda: answers_of(llama, GRID, 1, NEVER))
    # The first context whole; of each other one what stands after the needle before it, at least.
    contexts = 409 + 409 + 309 + 209 + 109
    assert run == pytest.approx(contexts + 5 * (5 + 8), abs=5)


def test_contexts_of_one_length_share_with_those_of_another(llama):
    longer = [asked(HAY[:d] + NEEDLE + HAY[d:n], 5) for n, d in ((200, 200), (400, 400))]
    run = tokens_run(llama.network, lambda: answers_of(llama, longer, 1, NEVER))
    assert run == pytest.approx(209 + 209 + 2 * 5, abs=2)


def test_a_context_that_is_asked_about_twice_runs_once(llama, plain):
    twice = [asked(HAY, 5), asked(HAY, 8)]
    answers = []
    run = tokens_run(llama.network, lambda: answers.extend(answers_of(llama, twice, 1, NEVER)))
    assert run == 400 + 5 + 8
    assert answers == [greedy(plain("llama"), sample, 1, NEVER) for sample in twice]


def test_contexts_that_begin_alike_by_chance_are_run_in_their_order(llama):
    apart = [asked([9 - i, *tiny.tokens(70, i)], 5) for i in range(4)]
    given = generate(llama, apart, max_new_tokens=1, stop_tokens=NEVER)
    assert [answer.sample for answer in given] == [0, 1, 2, 3]


def kept_tokens():
    """Tokens whose keys are kept in any row, for each layer."""
    alive = [one for one in gc.get_objects() if type(one) is Memory]
    return [keys.shape[2] for memory in alive for keys, _ in memory._buffers.values()]


def test_one_context_is_kept_at_a_time_where_one_fills_the_room(llama, monkeypatch):
    monkeypatch.setattr("longseal.models.generation.TOGETHER", 1)
    given = generate(llama, GRID, max_new_tokens=2, stop_tokens=NEVER)
    kept = [sum(kept_tokens()) / len(llama.sites) for _ in given]
    assert max(kept) == 409 + 5 + 8 + 2 * 2


def test_a_network_whose_continued_context_differs_shares_nothing(llama, monkeypatch):
    """Only that way of running is broken, so it must have been tried out."""
    wrong = shared_context._continued_attention

    def broken(query, key, value, scaling):
        yield from (2 * part for part in wrong(query, key, value, scaling))

    assert shared_context._packs_exactly(llama.network)
    monkeypatch.setattr(shared_context, "_continued_attention", broken)
    assert not shared_context._packs_exactly(llama.network)


@pytest.mark.parametrize("name", NAMES)
def test_each_question_has_a_budget_of_its_own(loaded, plain, name):
    budgets = [[3, 1, 7, 2], [4, 4, 1], [6]]
    given = list(generate(loaded(name), SAMPLES, max_new_tokens=budgets, stop_tokens=NEVER))
    found = {(answer.sample, answer.question): answer.tokens for answer in given}
    for s, sample in enumerate(SAMPLES):
        expected = greedy(plain(name), sample, 7, NEVER)
        for q, budget in enumerate(budgets[s]):
            assert found[s, q] == expected[q][:budget]


@pytest.mark.parametrize("name", NAMES)
def test_seconds_add_up_to_what_answering_took(loaded, name):
    model = loaded(name)
    ours(model, 1, NEVER)  # what is tried out once
    began = monotonic()
    given = list(generate(model, SAMPLES, max_new_tokens=6, stop_tokens=NEVER))
    took = monotonic() - began
    assert all(answer.seconds > 0 for answer in given)
    assert 0.5 * took < sum(answer.seconds for answer in given) <= took


def test_the_time_between_answers_is_not_counted(llama):
    given = []
    for answer in generate(llama, [SAMPLE], max_new_tokens=2, stop_tokens=NEVER):
        given.append(answer)
        sleep(0.2)
    assert sum(answer.seconds for answer in given) < 0.2


ROPES = {
    "longrope": {
        "original_max_position_embeddings": 64,
        "short_factor": [1.0] * 6,
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
    },
    "dynamic": {"factor": 4.0},
}
AROUND = [
    asked(tiny.tokens(n, n), 2, 9) for n in (20, 30, 52, 57, 80, 90, 85)
]  # 52 and 57 grow beyond 64 tokens


@pytest.mark.parametrize("rope", ROPES)
def test_positions_that_depend_on_the_length_are_those_of_each_prompt_alone(tmp_path, rope):
    scaling = {"rope_type": rope, "rope_theta": 10_000.0, **ROPES[rope]}
    window = 64 if rope == "dynamic" else 256
    config = tiny.LLAMA | {"max_position_embeddings": window, "rope_parameters": scaling}
    folder = tiny.save(tmp_path, config)
    usual = loaded_as(tiny.save(tmp_path / "usual", tiny.LLAMA))
    samples = [*AROUND, asked(AROUND[4].context, 4)]  # and one that could share with another

    def alone(load):
        return [
            [greedy(load(), replace(sample, questions=(question,)), 5, NEVER)[0]]
            for sample in samples
            for question in sample.questions
        ]

    def held(sample, question):
        """By dynamic NTK's base of the length that the row may grow to, or whole passes."""
        prompt = [*sample.context, *question]
        if len(prompt) > window:
            base = 10_000.0 * (4 * (len(prompt) + 5) / window - 3) ** (12 / 10)
            fixed = {"rope_parameters": {"rope_type": "default", "rope_theta": base}}
            network = loaded_as(tiny.save(tmp_path / str(len(prompt)), tiny.LLAMA | fixed))
            return greedy(network, replace(sample, questions=(question,)), 5, NEVER)[0]
        for _ in range(5):
            network, row = loaded_as(folder), torch.tensor([prompt])
            prompt.append(int(network(row, use_cache=False).logits[0, -1].argmax()))
        return prompt[-5:]

    if rope == "dynamic":
        expected = [[held(sample, q)] for sample in samples for q in sample.questions]
    else:
        expected = alone(lambda: loaded_as(folder))
    assert expected != alone(lambda: usual)  # these lengths do show
    found = answers_of(longseal.load(folder, device="cpu"), samples, 5, NEVER)
    assert [[answer] for answers in found for answer in answers] == expected


def loaded_as(folder):
    """The network as transformers loads it: nothing is left in it of longer rows before."""
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")


def rows_run(network, work):
    """The shapes of the rows that go through the network, prompts only."""
    shapes = []
    embedding = network.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _m, args: shapes.append(args[0].shape))
    try:
        work()
    finally:
        hook.remove()
    return [tuple(shape) for shape in shapes if shape[1] > 1]


def test_samples_of_similar_length_are_padded_together(loaded):
    model = loaded("mistral")
    samples = [asked(tiny.tokens(n, n), 4) for n in (200, 60, 202, 195, 61)]
    ours(model, 1, NEVER)
    rows = rows_run(model.network, lambda: answers_of(model, samples, 1, NEVER))
    assert rows == [(2, 65), (3, 206)]


@pytest.mark.parametrize(
    ("together", "expected"),
    [("equal", [(1, 66), (2, 64), (3, 65)]), ("none", [(1, n) for n in (64, 64, 65, 65, 65, 66)])],
)
def test_prompts_that_must_not_run_together_do_not(loaded, monkeypatch, together, expected):
    model = loaded("mistral")
    monkeypatch.setattr("longseal.models.generation.runs_together", lambda _network: together)
    samples = [asked(tiny.tokens(n, n), 4, 5) for n in (60, 61, 60)]
    rows = rows_run(model.network, lambda: answers_of(model, samples, 1, NEVER))
    assert sorted(rows) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mistral", "any"), ("mamba", "equal"), ("deepseek_v32", "equal"), ("rwkv", "none")],
)
def test_what_may_run_together_is_tried_out(name, expected):
    assert runs_together(zoo.build(name)) == expected


@pytest.mark.parametrize(
    "name",
    ["bloom", "cpmant", "deepseek_v32", "gemma3", "llama4", "mamba", "minicpm3", "mpt", "rwkv"],
)
def test_families_with_attention_of_their_own_are_answered_as_each_prompt_alone(name):
    network = zoo.build(name)
    network.generation_config = GenerationConfig()
    model = SimpleNamespace(network=network, device=network.device)
    last = vocabulary_size(network) - 1
    samples = [
        replace(
            sample,
            context=tuple(token % last for token in sample.context[-130:]),
            questions=tuple(tuple(token % last for token in q) for q in sample.questions),
        )
        for sample in GRID[:3]
    ]
    expected = [greedy(network, sample, 4, [last]) for sample in samples]
    assert answers_of(model, samples, 4, [last]) == expected
