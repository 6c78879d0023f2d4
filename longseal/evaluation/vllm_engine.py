"""Answers by vLLM, for a model that needs nothing of this package: a base or a folded one.

Written for vLLM 0.33.0, by the signatures in its wheel; it has not been run on it here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from longseal.errors import LongsealError
from longseal.models.generation import Continuation
from longseal.tasks.asking import Generate
from longseal.tasks.prompt import EncodedSample

#: Prompts that are handed over at once: enough to keep a GPU busy, and few enough for the bar to
#: move and for a stopped run to keep what is done.
AT_ONCE = 256


def generate_with_vllm(
    model: str | os.PathLike[str],
    *,
    longest: int | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> Generate:
    """Load a model into vLLM; what is returned continues prompts greedily with it.

    Prompts that begin alike share what vLLM keeps of them (prefix caching). The model's own
    generation settings are left out, as they are by `longseal.models.generation`.

    Args:
        model: a folder or a hub id.
        longest: tokens of the longest prompt with its answer, for which memory is laid out; the
            model's window where it is None.

    Raises:
        LongsealError: vLLM is not installed, or cannot load the model.
    """
    try:
        from vllm import LLM
    except ImportError as error:
        raise LongsealError(
            "vLLM is not installed: pip install vllm, or use --engine transformers"
        ) from error
    window = {} if longest is None else {"max_model_len": longest}
    try:
        engine = LLM(
            model=os.fspath(model),
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            enable_prefix_caching=True,
            generation_config="vllm",
            seed=0,
            **window,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise LongsealError(f"vLLM cannot load {os.fspath(model)}: {_line(error)}") from error

    def run(
        samples: Sequence[EncodedSample], budgets: Sequence[Sequence[int]], stop: Sequence[int]
    ) -> Iterator[Continuation]:
        asked = [(s, q) for s, sample in enumerate(samples) for q in range(len(sample.questions))]
        for start in range(0, len(asked), AT_ONCE):
            yield from _answered(engine, samples, budgets, stop, asked[start : start + AT_ONCE])

    return run


def _answered(
    engine: Any,
    samples: Sequence[EncodedSample],
    budgets: Sequence[Sequence[int]],
    stop: Sequence[int],
    asked: Sequence[tuple[int, int]],
) -> Iterator[Continuation]:
    from vllm import SamplingParams

    began = monotonic()
    settings = [
        # The model's own EOS is ignored: only our stop tokens end an answer, in every engine.
        SamplingParams(
            temperature=0.0,
            max_tokens=budgets[s][q],
            stop_token_ids=list(stop),
            ignore_eos=True,
            detokenize=False,
        )
        for s, q in asked
    ]
    prompts = [{"prompt_token_ids": list(samples[s].prompt(q))} for s, q in asked]
    try:
        outputs = engine.generate(prompts, settings, use_tqdm=False)
    except (RuntimeError, ValueError) as error:
        raise LongsealError(f"vLLM failed: {_line(error)}") from error
    seconds = (monotonic() - began) / len(asked)
    for (s, q), output in zip(asked, outputs, strict=True):
        tokens = list(output.outputs[0].token_ids)
        if tokens and tokens[-1] in stop:
            tokens.pop()
        yield Continuation(s, q, tokens, seconds)


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
