"""Where heads look, against the attention weights that transformers itself gives."""

import pytest
import tiny
import torch

from longseal.probing.looks import FIRST, looks

PROMPT, ANSWER = tiny.tokens(150, 1), tiny.tokens(6, 2)
EVIDENCE = (40, 60)


@pytest.mark.parametrize("block", [2**23, 3000])
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_looks_are_those_of_the_eager_weights(loaded, plain, name, block, monkeypatch):
    monkeypatch.setattr("longseal.models.watched_attention._BLOCK", block)
    prompt = [*PROMPT]
    prompt[EVIDENCE[0] : EVIDENCE[0] + 4] = ANSWER[:4]
    found = looks(loaded(name), prompt, ANSWER, EVIDENCE)
    row = torch.tensor([prompt + ANSWER])
    with torch.no_grad():
        weights = plain(name)(input_ids=row, output_attentions=True).attentions
    places = torch.arange(row.shape[1])
    back = places[:, None] - places
    for look in found:
        each = weights[look.head.layer][0, look.head.head]
        assert look.distance == pytest.approx((each * back).sum(-1).mean().item(), rel=1e-4)
        assert look.first == pytest.approx(each[:, :FIRST].sum(-1).mean().item(), rel=1e-4)
        most = each.argmax(-1)
        right = total = 0
        for number, token in enumerate(ANSWER):
            inside = [p for p in range(*EVIDENCE) if prompt[p] == token]
            total += bool(inside)
            right += most[len(prompt) + number - 1].item() in inside
        assert total >= 4
        assert look.copies == pytest.approx(right / total)


def test_nothing_is_copied_where_there_is_no_evidence(loaded):
    assert {look.copies for look in looks(loaded("llama"), PROMPT, ANSWER, None)} == {None}


def test_the_model_is_as_it_was(loaded):
    model = loaded("llama")
    before = model.network.config._attn_implementation
    looks(model, PROMPT, ANSWER, EVIDENCE)
    assert model.network.config._attn_implementation == before
