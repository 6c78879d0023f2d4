"""What an evaluation costs beside one `generate` call of transformers for each case.

A needle grid: one length, needles at evenly spread depths, several questions on each context, all
answered greedily by the same network in both ways, one after the other. Both answer the same
prompts with the same budget; the predictions are compared token by token.

    python benchmarks/evaluation.py [--model ...] [--length 2048] [--depths 11] [--questions 8]
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any, Literal

import torch
from cyclopts import run

import longseal
from longseal.config import LoadConfig
from longseal.measure import machine, peak_memory, versions
from longseal.models.generation import generate
from longseal.models.load import LanguageModel
from longseal.tasks.fitting import fit
from longseal.tasks.prompt import EncodedSample, Prompts

ASKED = (
    "What is the secret code?",
    "Which secret code does the text give?",
    "The text names a secret code. Repeat it.",
    "Somewhere a code stands that has nothing to do with the rest. Which one?",
    "Find the secret code in the text above and write it down.",
    "Quote the sentence with the secret code.",
    "Please tell me the code that is called secret.",
    "Read out the code, letter by letter as it stands there.",
)

Answers = dict[tuple[int, int], list[int]]


def main(
    *,
    model: str | None = None,
    length: int = 2048,
    depths: int = 11,
    questions: int = 8,
    new_tokens: int = 50,
    device: str = "auto",
    dtype: Literal["float32", "bfloat16"] = "float32",
    quick: bool = False,
) -> None:
    """Answer a grid in both ways and print one JSON line for each, and one to compare them.

    Parameters
    ----------
    quick
        A small trial; its figures say nothing.
    """
    if quick:
        length, depths, questions, new_tokens = 512, 2, 2, 8
    loaded = longseal.load(model, LoadConfig(device=device, dtype=dtype))
    prompts = Prompts(loaded)
    print(json.dumps({"machine": machine(loaded.device), "versions": versions()}))
    samples = grid(prompts, length, depths, questions)
    stop = prompts.stop_tokens

    def ours(asked: list[EncodedSample]) -> Answers:
        given = generate(loaded, asked, max_new_tokens=new_tokens, stop_tokens=stop)
        return {(answer.sample, answer.question): answer.tokens for answer in given}

    def theirs(asked: list[EncodedSample]) -> Answers:
        return {
            (number, question): one_call(loaded, sample.prompt(question), new_tokens, stop)
            for number, sample in enumerate(asked)
            for question in range(len(sample.questions))
        }

    found = {}
    for name, way in {"longseal": ours, "transformers": theirs}.items():
        way([samples[0].only([0])])  # what is done once
        found[name] = timed(loaded, name, way, samples)
    (our_answers, our_time), (their_answers, their_time) = found.values()
    same = sum(our_answers[case] == answer for case, answer in their_answers.items())
    compared = {"same": same, "of": len(their_answers), "ratio": round(their_time / our_time, 2)}
    print(json.dumps({"length": length, "depths": depths, "questions": questions, **compared}))


def grid(prompts: Prompts, length: int, depths: int, questions: int) -> list[EncodedSample]:
    """A context for each depth; its needle is asked for in several wordings."""
    task = longseal.task("needle/uuid")
    made = []
    for number in range(depths):
        depth = number / max(1, depths - 1)
        sample = fit(prompts, task, length, 1, "evaluation", depth=depth).source
        worded = [replace(sample.questions[0], text=f"\n\n{text}") for text in ASKED[:questions]]
        made.append(prompts.encode(replace(sample, questions=tuple(worded))))
    return made


def one_call(
    model: LanguageModel, prompt: tuple[int, ...], new_tokens: int, stop: list[int]
) -> list[int]:
    """The new tokens of a prompt by transformers alone."""
    row = torch.tensor([prompt], device=model.device)
    call: Any = model.network.generate
    output: torch.Tensor = call(
        input_ids=row,
        attention_mask=torch.ones_like(row),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=stop,
        pad_token_id=stop[0],
    )
    said: list[int] = output[0, row.shape[1] :].tolist()
    return said[:-1] if said and said[-1] in stop else said


def timed(
    model: LanguageModel,
    name: str,
    way: Callable[[list[EncodedSample]], Answers],
    samples: list[EncodedSample],
) -> tuple[Answers, float]:
    """Answers, and the seconds they took, which are printed."""
    began = monotonic()
    answers = way(samples)
    seconds = monotonic() - began
    memory = peak_memory(model.device)
    print(json.dumps({"by": name, "seconds": round(seconds, 2), "peak_memory": memory}))
    return answers, seconds


if __name__ == "__main__":
    run(main)
