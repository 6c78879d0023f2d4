"""What the model could do before is measured beside the wanted task: formats, and text."""

import json
from contextlib import contextmanager, nullcontext
from math import exp, inf

import pytest
import tiny
import torch

from longseal.errors import LongsealError
from longseal.files import Log
from longseal.tasks import Question, Recorded, Sample
from longseal.tasks.prompt import Prompts
from longseal.tuning.guard import Guard, Measured, formats, harm, text

LENGTH = 700


def guard(model, **settings):
    """A guard of one format that a random model gets partly right, and of the built-in prose."""
    given = {"tasks": [tiny.Chance()], "unchanged": nullcontext} | settings
    return Guard(model, Prompts(model), wanted=(), length=LENGTH, window=model.window, **given)


def scaled(model, spread=0.3):
    return tiny.random_scales(model, "channel", spread).attached(model.network)


@contextmanager
def broken(model):
    """A model whose predictions are no numbers."""
    hook = model.network.lm_head.register_forward_hook(lambda *args: args[2] * float("nan"))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def runs_of(model):
    ran = []
    hook = model.network.register_forward_pre_hook(lambda *_: ran.append(1))
    try:
        yield ran
    finally:
        hook.remove()


def test_an_unchanged_model_has_lost_nothing(llama):
    watch = guard(llama)
    base = watch.base()
    again = watch.measure({"step": 0})
    assert again == base
    assert all(text.kl == 0 and text.agreement == 1 for text in again.texts)
    assert 0 < base.formats[0].score < 1
    assert harm(base, again).within(0)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_text_is_scored_as_transformers_would(loaded, plain, name):
    model = loaded(name)
    watch = guard(model, tasks=[tiny.ShortLines()])
    watch.base()
    with scaled(model):
        found = watch.measure({"step": 1}).texts
    assert [score.name for score in found] == ["prose, 4 x 256 tokens", "prose, 700 tokens"]
    for score, written in zip(found, watch.texts, strict=True):
        rows = [(piece, score.tokens // len(written.pieces)) for piece in written.pieces]
        base, now, labels = map(
            torch.cat, zip(*(by_hand(plain(name), model, *r) for r in rows), strict=True)
        )
        assert score.tokens == len(labels)
        loss = torch.nn.functional.nll_loss(now, labels).item()
        assert score.perplexity == pytest.approx(exp(loss), rel=1e-3)
        kl = torch.nn.functional.kl_div(now, base, log_target=True, reduction="batchmean").item()
        assert score.kl == pytest.approx(kl, rel=1e-3)
        assert score.kl > 0.01
        same = (now.argmax(-1) == base.argmax(-1)).float().mean().item()
        assert score.agreement == pytest.approx(same, abs=0.01)
        assert score.agreement < 1


@torch.no_grad()
def by_hand(network, model, piece, count):
    """Log-probabilities of the base and the scaled model at some places, and what stands there."""
    places = torch.linspace(0, len(piece) - 2, count).round().long()
    assert len(places.unique()) == count
    row = torch.tensor([piece])
    base = network(input_ids=row).logits[0, places].log_softmax(-1)
    with tiny.random_scales(model, "channel").attached(network):
        now = network(input_ids=row).logits[0, places].log_softmax(-1)
    return base, now, torch.tensor(piece)[places + 1]


def test_a_text_starts_with_bos_and_holds_no_turn_of_a_chat(llama):
    ids = llama.tokenizer.convert_tokens_to_ids(["<|bos|>", "<|turn|>"])
    for written in guard(llama).texts:
        assert ids[1] not in written.pieces[0]


def test_lm_head_sees_few_places_even_of_a_large_vocabulary(llama, monkeypatch):
    monkeypatch.setattr(text, "_KEPT", 40 * len(tiny.tokenizer()))
    watch, seen = guard(llama), []
    hook = llama.network.lm_head.register_forward_pre_hook(
        lambda _, args: seen.append(args[0].shape[1])
    )
    try:
        predicted = watch._predict()
    finally:
        hook.remove()
    assert seen == [10, 10, 10, 10, 40]
    assert [sum(map(len, tensors)) for tensors in predicted] == [40, 40]


def test_what_the_log_holds_is_not_measured_again(llama, tmp_path):
    log = Log(tmp_path / "log.jsonl")
    watch = guard(llama, log=log)
    base = watch.base()
    with scaled(llama):
        once = watch.measure({"step": 3, "strength": 0.7})
    with runs_of(llama) as ran:
        resumed = guard(llama, log=Log(log.path))
        assert resumed.base() == base
        assert resumed.measure({"step": 3, "strength": 0.7}) == once
    assert not ran
    assert once != base


def test_a_resumed_guard_compares_with_the_unchanged_model(llama, tmp_path):
    log = Log(tmp_path / "log.jsonl")
    watch = guard(llama, log=log)
    watch.base()
    with scaled(llama):
        whole = watch.measure({"step": 1})
    log.path.write_text(log.path.read_text().splitlines(keepends=True)[0])
    scales = tiny.random_scales(llama, "channel")

    @contextmanager
    def unchanged():
        kept = {name: delta.clone() for name, delta in scales.deltas.items()}
        for delta in scales.deltas.values():
            delta.zero_()
        yield
        for name, delta in scales.deltas.items():
            delta.copy_(kept[name])

    with scales.attached(llama.network):
        resumed = guard(llama, log=log, unchanged=unchanged)
        resumed.base()
        assert resumed.measure({"step": 1}) == whole


# No numbers


def test_a_model_that_gives_no_numbers_has_lost_everything(llama, tmp_path):
    watch = guard(llama, log=Log(tmp_path / "log.jsonl"))
    base = watch.base()
    with broken(llama):
        now = watch.measure({"step": 1})
    assert now.texts[0].perplexity == now.texts[0].kl == inf
    assert now.formats[0].score == 0
    lost = harm(base, now)
    assert lost.total
    assert not lost.within(1e9)
    assert "not finite" in lost.sentence
    assert Measured.from_json(json.loads(json.dumps(now.to_json(), allow_nan=False))) == now


def test_a_base_that_gives_no_numbers_is_refused(llama):
    with broken(llama), pytest.raises(LongsealError, match="not finite numbers in float32"):
        guard(llama).base()


# Formats


class Always(tiny.ShortLines):
    """Calls every answer right."""

    def score(self, prediction, question):
        return {"last": 1.0}


def test_an_answer_in_other_words_is_counted_apart_and_is_no_loss(llama):
    watch = guard(llama, tasks=[Always()])
    base = watch.base()
    with scaled(llama, 1.5):
        now = watch.measure({"step": 1})
    (score,) = now.formats
    assert (score.score, score.gained, score.lost) == (1, 0, 0)
    assert 0 < score.reworded <= score.questions
    assert harm(base, now).worst_format == 0
    assert f"{score.reworded} of {score.questions} answers" in harm(base, now).sentence


def test_answers_that_change_sides_are_counted(llama):
    watch = guard(llama)
    base = watch.base().formats[0]
    with scaled(llama, 1.5):
        now = watch.measure({"step": 1}).formats[0]
    assert now.gained + now.lost > 0
    assert now.score - base.score == pytest.approx((now.gained - now.lost) / now.questions)


def test_formats_asked_together_are_answered_as_alone(llama):
    prompts = Prompts(llama)
    made = [
        formats.own_format(prompts, task, LENGTH, None, 0) for task in (Always(), tiny.Chance())
    ]
    together = formats.ask_all(llama, prompts, made)
    assert together == [formats.ask_all(llama, prompts, [each])[0] for each in made]


def test_a_wanted_task_and_those_alike_are_not_guarded(monkeypatch):
    monkeypatch.setattr(formats, "_made", lambda *_: ())

    def names(*wanted):
        return {each.task.name for each in formats.default_formats(None, wanted, 2048, 0)}

    assert names() == set(formats.DEFAULT)
    alike = {name: {name} for name in ("lines", "code", "ruler/fwe")}
    alike["ruler/niah_single_3"] = {name for name in formats.DEFAULT if "niah" in name}
    for wanted, left_out in alike.items():
        assert names() - names(wanted) == left_out


def test_no_sample_is_longer_than_the_wanted_length():
    assert formats.default_formats(tiny.prompts(), (), 100, 0) == []
    made = formats.default_formats(tiny.prompts(), (), 800, 0)
    assert made
    assert all(sample.length <= 800 for each in made for sample in each.samples)


class Given(Recorded):
    about, metric, max_new_tokens = "given", "right", 3

    def score(self, prediction, question):
        return {"right": 1.0}


def test_of_a_user_s_file_the_held_out_part_is_asked(llama):
    samples = [Sample(f"Text {i}. ", (Question("What?", "x", ("x",)),)) for i in range(10)]
    made = formats.own_format(Prompts(llama), Given("own", samples), LENGTH, None, 0)
    assert [sample.source.context for sample in made.samples] == ["Text 3. ", "Text 8. "]
    with pytest.raises(LongsealError, match="no held-out sample of own fits"):
        formats.own_format(Prompts(llama), Given("own", samples), LENGTH, 20, 0)


def test_one_part_of_an_answer_is_worth_less_than_all_of_it(llama):
    prompts = Prompts(llama)
    whole = formats.own_format(prompts, Always(), LENGTH, None, 0)
    assert whole.worth == 1 / sum(len(sample.questions) for sample in whole.samples)
    words = formats.task("ruler/fwe")  # three of them, and here one question
    parted = formats.Format(words, formats._contexts(prompts, words, 3000, 0))
    assert parted.worth == pytest.approx(1 / 3)


# Texts of the user's


def test_a_user_s_text_is_read_at_its_start_and_in_its_middle(llama, tmp_path):
    path = tmp_path / "own.txt"
    words = " ".join(map(str, range(1000)))
    path.write_text(words)
    prompts = Prompts(llama)
    made = text.own_text(prompts, path, 100)
    body = 100 - len(prompts.tokens(""))
    assert [len(piece) for piece in made.pieces] == [100, 100]
    assert words.startswith(prompts.text(made.pieces[0]))
    assert prompts.text(made.pieces[1]) == words[(len(words) + 1) // 2 :][:body]
    watch = guard(llama, texts=[path])
    assert [score.name for score in watch.base().texts] == [str(path)]


def test_a_text_that_says_nothing_is_refused(llama, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("Short.")
    with pytest.raises(LongsealError, match="at least 32"):
        guard(llama, texts=[path])
    with pytest.raises(LongsealError, match="cannot be read"):
        guard(llama, texts=[tmp_path / "missing.txt"])
