"""Prompts of models that think, of templates without a system role, and with an answer prefix."""

import pytest
import tiny

from longseal.models.load import LanguageModel
from longseal.tasks import Question, Sample, Wanted
from longseal.tasks.fitting import budget, fit
from longseal.tasks.lines import Lines
from longseal.tasks.prompt import Prompts

QUESTION = Question("\nWhat is it?", " 7.", ("7",), prefix=" It is", evidence="It is 7 here.")
SAMPLE = Sample("Some text. It is 7 here. More.", (QUESTION,))
SYSTEM = Sample("It is 7.", (QUESTION,), before=(("system", "Be brief."),))
ALWAYS = tiny.TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
SWITCH = tiny.TEMPLATE.replace(
    "assistant\n{% endif",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif",
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    + tiny.TEMPLATE
)
DROPS_SYSTEM = tiny.TEMPLATE.replace(
    "{% for m in messages %}", "{% for m in messages if m['role'] != 'system' %}"
)


def prompts_of(model, template, thinking=False):
    tokenizer = tiny.tokenizer(template)
    if thinking:
        tokenizer.add_tokens(["<think>", "</think>"])
    model = LanguageModel(model.source, model.network, tokenizer, model.structure, model.window)
    return Prompts(model, thinking=50)


def whole(prompts, sample=SAMPLE):
    encoded = prompts.encode(sample)
    return encoded, prompts._tokenizer.decode(encoded.prompt(0))


def test_the_answer_prefix_stands_behind_the_assistant_s_header(llama):
    prompts = prompts_of(llama, tiny.TEMPLATE)
    encoded, text = whole(prompts)
    assert text.endswith("<|turn|>assistant\n It is")
    answer = llama.tokenizer.decode(encoded.answers[0], skip_special_tokens=True)
    assert answer == " 7."


def test_without_a_template_the_prefix_follows_the_text_itself(llama):
    assert whole(prompts_of(llama, None))[1].endswith("More.\nWhat is it? It is")


def test_without_a_template_a_colon_leads_on_and_no_line_break_is_added(llama):
    sample = Sample("It is 7.", (Question("\nAnswer:", " 7", ("7",)),))
    assert whole(prompts_of(llama, None), sample)[1] == "It is 7.\nAnswer:"


def test_a_sample_that_is_no_chat_is_the_bare_text_in_spite_of_a_template(llama):
    sample = Sample("It is 7.", (Question("\nSay", " 7", ("7",)),), chat=False)
    assert whole(prompts_of(llama, tiny.TEMPLATE), sample)[1] == "It is 7.\nSay"


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM], ids=["refuses", "drops"])
def test_a_system_turn_that_a_template_does_not_know_goes_to_the_user(llama, template):
    text = whole(prompts_of(llama, template), SYSTEM)[1]
    assert "<|turn|>user\nBe brief.\n\nIt is 7." in text
    assert "system" not in text


def test_a_system_turn_that_a_template_knows_stays_one(llama):
    text = whole(prompts_of(llama, tiny.TEMPLATE), SYSTEM)[1]
    assert "<|turn|>system\nBe brief.<|end|>" in text


def test_thinking_is_switched_off_where_the_template_can(llama):
    prompts = prompts_of(llama, SWITCH, thinking=True)
    assert not prompts.thinks
    assert budget(Lines(), prompts) == Lines.max_new_tokens
    assert whole(prompts)[1].endswith("<think>\n\n</think>\n\n It is")


@pytest.mark.parametrize("template", [tiny.TEMPLATE, ALWAYS], ids=["silent", "opened"])
def test_a_model_that_cannot_be_told_not_to_think_has_a_budget_and_no_prefix(llama, template):
    prompts = prompts_of(llama, template, thinking=True)
    assert prompts.thinks
    assert budget(Lines(), prompts) == Lines.max_new_tokens + 50
    encoded, text = whole(prompts)
    assert " It is" not in text.rpartition("assistant")[2]
    learned = prompts._tokenizer.decode(encoded.answers[0])
    assert (text + learned).count("<think>") == 1
    assert learned.endswith("\n</think>\n\n 7.<|end|>")


def test_thoughts_are_counted_apart_and_are_no_answer(llama):
    prompts = prompts_of(llama, ALWAYS, thinking=True)
    said = prompts.ids("It may be 9.</think>\n\nIt is 7.")
    answer, thoughts = prompts.decode(said)
    assert answer == "It is 7."
    assert thoughts == len(prompts.ids("It may be 9.</think>"))


def test_a_thought_that_does_not_end_leaves_no_answer(llama):
    prompts = prompts_of(llama, ALWAYS, thinking=True)
    said = prompts.ids("It may be 9, or 7")
    assert prompts.decode(said) == ("", len(said))


def test_a_model_without_thoughts_is_read_as_it_speaks(llama):
    prompts = prompts_of(llama, tiny.TEMPLATE)
    assert prompts.decode(prompts.ids("\nIt is 7.")) == ("\nIt is 7.", 0)


def test_the_depth_is_the_share_of_the_context_s_tokens_before_the_evidence(llama):
    (depth,) = prompts_of(llama, tiny.TEMPLATE).depths(SAMPLE)
    before, after = "Some text. ", " More."  # a token a byte
    assert depth == len(before) / (len(before) + len(after))


def test_evidence_that_is_nowhere_has_no_depth(llama):
    sample = Sample("Some text.", (QUESTION,))
    assert prompts_of(llama, tiny.TEMPLATE).depths(sample) == (None,)


@pytest.mark.parametrize("length", [1000, 1500, 2500, 4000])
@pytest.mark.parametrize("questions", [1, 4])
def test_a_sample_has_at_least_95_percent_of_its_length(llama, length, questions):
    prompts = Prompts(llama)
    encoded = fit(prompts, Lines(), length, questions, "seed")
    assert 0.95 * length <= encoded.length + Lines.max_new_tokens <= length


@pytest.mark.parametrize("depth", [0.0, 0.3, 0.5, 1.0])
def test_the_line_that_is_asked_for_stands_at_the_wanted_depth(llama, depth):
    prompts = Prompts(llama)
    encoded = fit(prompts, Lines(), 4000, 3, "seed", depth=depth)
    line = encoded.source.questions[0].evidence
    lines = encoded.source.context.partition("start:\n\n")[2]
    assert lines.index(line) / (len(lines) - len(line)) == pytest.approx(depth, abs=0.03)
    assert len(encoded.questions) == 3


def test_a_wish_draws_apart_for_each_purpose():
    wanted = Wanted(3, seed="s")
    assert wanted.random("a").random() == wanted.random("a").random()
    assert wanted.random("a").random() != wanted.random("b").random()
