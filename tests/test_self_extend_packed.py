"""Self-Extend where a context is run once for many questions: tuning, answers, pruning."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from dense_reference import Dense, written_out
from torch import Tensor

from longseal.models.generation import generate
from longseal.models.load import LanguageModel, load
from longseal.models.saving import saving, ways
from longseal.models.shared_context import shares_context
from longseal.probing.looks import looks
from longseal.tasks.loss import loss, shares_row
from longseal.tasks.prompt import EncodedSample

EXTEND = "self-extend:3:16"
DENSE = Dense(3, 16, 10_000.0, 12)
#: Questions shorter and longer than the neighbours, after a context shorter and longer than they.
CONTEXTS = [7, 40, 300]
BLOCKS = ((5, 4), (30, 6), (3, 25))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), dtype=torch.float64)


@pytest.fixture(scope="module")
def models(folder: Path) -> tuple[LanguageModel, LanguageModel]:
    """As it is, and extended."""
    found = [load(folder, device="cpu", extend=e) for e in (None, EXTEND)]
    for model in found:
        model.network.double()
    return found[0], found[1]


def dense_row(model: LanguageModel, prompt: list[int]) -> Tensor:
    row = torch.tensor([prompt])
    with written_out(model.network, DENSE, torch.ones_like(row)):
        still = torch.zeros_like(row)
        logits: Tensor = model.network(input_ids=row, position_ids=still).logits[0]
    return logits


def dense_loss(model: LanguageModel, encoded: EncodedSample) -> Tensor:
    """Each question by itself, written out."""
    total = torch.zeros((), dtype=torch.float64)
    for question, answer in zip(encoded.questions, encoded.answers, strict=True):
        prompt = [*encoded.context, *question]
        logits = dense_row(model, [*prompt, *answer])[len(prompt) - 1 : -1]
        total = total - logits.log_softmax(-1)[range(len(answer)), list(answer)].sum()
    return total / sum(map(len, encoded.answers))


@pytest.mark.parametrize("context", CONTEXTS)
def test_many_questions_on_a_context_lose_what_each_by_itself_does(
    models: tuple[LanguageModel, LanguageModel], context: int
) -> None:
    base, extended = models
    encoded = tiny.encoded(context, BLOCKS)
    assert shares_row(extended, encoded)
    assert loss(extended, encoded) == pytest.approx(dense_loss(base, encoded).item(), rel=1e-6)


@pytest.mark.parametrize("way", ["everything", "attention", "layers", "tiles"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_the_gradient_is_exact_whatever_is_kept(
    models: tuple[LanguageModel, LanguageModel], context: int, way: str
) -> None:
    base, extended = models
    encoded = tiny.encoded(context, BLOCKS)
    assert way in ways(extended.network)
    grads = []
    for model in models:
        scales = tiny.random_scales(model, "channel")
        deltas = list(scales.deltas.values())
        for delta in deltas:
            delta.requires_grad_(True)
        with scales.attached(model.network):
            if model is base:
                dense_loss(model, encoded).backward()
            else:
                with saving(model.network, way):
                    loss(model, encoded, backward=True)
        grads.append(torch.cat([delta.grad.flatten() for delta in deltas]))
    torch.testing.assert_close(grads[1], grads[0], atol=1e-4 * float(grads[0].std()), rtol=0)


def greedy(model: LanguageModel, prompt: list[int], count: int) -> list[int]:
    said: list[int] = []
    with torch.no_grad():
        for _ in range(count):
            said.append(int(dense_row(model, [*prompt, *said])[-1].argmax()))
    return said


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("context", CONTEXTS)
def test_answers_are_those_of_a_whole_pass_a_token(
    models: tuple[LanguageModel, LanguageModel],
    context: int,
    packed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, extended = models
    if not packed:
        monkeypatch.setattr("longseal.models.generation.shares_context", lambda network: False)
    samples = [tiny.encoded(context, BLOCKS), tiny.encoded(context + 5, BLOCKS[:2])]
    answers = list(generate(extended, samples, max_new_tokens=5, stop_tokens=[2]))
    assert len(answers) == 5
    for answer in answers:
        prompt = [*samples[answer.sample].prompt(answer.question)]
        expected = greedy(base, prompt, 5)
        end = expected.index(2) if 2 in expected else 5
        assert answer.tokens == expected[:end]


def test_it_is_seen_by_trial_that_contexts_can_be_shared(
    models: tuple[LanguageModel, LanguageModel],
) -> None:
    assert shares_context(models[1].network)


def test_where_heads_look_is_where_they_look_extended(
    models: tuple[LanguageModel, LanguageModel],
) -> None:
    base, extended = models
    prompt, answer = tiny.tokens(60), tiny.tokens(5, seed=3)
    row = torch.tensor([[*prompt, *answer]])
    seen: list[Tensor] = []
    softmax = Tensor.softmax

    def watched(self: Tensor, dim: int) -> Tensor:
        made = softmax(self, dim)
        seen.append(made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "softmax", watched)
        with written_out(base.network, DENSE, torch.ones_like(row)):
            base.network(input_ids=row, position_ids=torch.zeros_like(row))
    found = looks(extended, prompt, answer, None)
    places = torch.arange(row.shape[1])
    back = (places[:, None] - places).double()
    expected = [float((w * back).sum()) / len(places) for layer in seen for w in layer[0]]
    assert [look.distance for look in found] == pytest.approx(expected, rel=1e-4)
