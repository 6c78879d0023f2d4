"""lm-eval's own RULER gives the same answers for a folded model and for its adapter."""

import pytest
import tiny

from longseal.fold import fold

pytestmark = pytest.mark.slow  # lm-eval looks through its tasks for long


def answers(tasks, **model):
    """What niah_single_1 was answered with, and the documents that were asked."""
    from lm_eval import simple_evaluate

    found = simple_evaluate(
        model="hf",
        model_args={"dtype": "float32", "max_length": 2048 + 512, **model},
        tasks=["niah_single_1"],
        task_manager=tasks,
        limit=2,
        device="cpu",
        bootstrap_iters=0,
    )
    samples = found["samples"]["niah_single_1"]
    return [sample["doc_hash"] for sample in samples], [sample["resps"] for sample in samples]


def test_a_folded_model_and_its_adapter_answer_alike(llama, checkpoint, tmp_path):
    pytest.importorskip("nltk", reason="lm-eval's RULER needs nltk: pip install 'lm-eval[ruler]'")
    from lm_eval.tasks import TaskManager

    base = str(checkpoint("llama"))
    tasks = TaskManager(metadata={"tokenizer": base, "max_seq_lengths": [2048]})
    tiny.adapter_of(llama, seed=3).save(tmp_path / "adapter")
    fold(base, tmp_path / "adapter", tmp_path / "folded")

    asked, folded = answers(tasks, pretrained=str(tmp_path / "folded"))
    assert (asked, folded) == answers(tasks, pretrained=base, peft=str(tmp_path / "adapter"))
    same, plain = answers(tasks, pretrained=base)
    assert same == asked
    assert plain != folded
