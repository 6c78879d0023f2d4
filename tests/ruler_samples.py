"""RULER samples for tests."""

from __future__ import annotations

import json
from pathlib import Path

from longseal.tasks.ruler import FAMILY
from longseal.tasks.sample import Material, Question, Sample, Task, Wanted


def task(name: str, *files: Path) -> Task:
    """A task of RULER, with the built-in prose."""
    return FAMILY.make(name, Material(files))


def sample(name: str, size: int, seed: str = "0", *files: Path, **wanted: object) -> Sample:
    return task(name, *files).sample(Wanted(size, seed=seed, **wanted))


def prompt(made: Sample, question: Question | None = None) -> str:
    """What a base model reads."""
    question = question or made.questions[0]
    return made.context + question.text + question.prefix


def squad(folder: Path, articles: int = 4, paragraphs: int = 5) -> Path:
    """A file in the format of SQuAD v2; paragraphs are of many lengths."""
    data = [
        {
            "title": f"Article {a}",
            "paragraphs": [
                {
                    "context": f"Paragraph {a}-{p}." + " It goes on." * (3 * p + a),
                    "qas": [
                        {
                            "question": f"Which paragraph is {a}-{p}?",
                            "answers": [{"text": f"{a}-{p}"}, {"text": f"{a} dash {p}"}],
                            "is_impossible": False,
                        },
                        {"question": "What is not there?", "answers": [], "is_impossible": True},
                    ],
                }
                for p in range(paragraphs)
            ],
        }
        for a in range(articles)
    ]
    path = folder / "dev-v2.0.json"
    path.write_text(json.dumps({"version": "v2.0", "data": data}))
    return path


def hotpotqa(folder: Path, questions: int = 12) -> Path:
    """A file in the format of HotpotQA; two of a question's three documents are gold."""
    rows = [
        {
            "question": f"Who is number {q}?",
            "answer": f"Name {q}",
            "supporting_facts": [[f"Title {q}a", 0], [f"Title {q}b", 0]],
            "context": [
                [f"Title {q}{letter}", [f"Sentence one of {q}{letter}.", " Sentence two."]]
                for letter in "abc"
            ],
        }
        for q in range(questions)
    ]
    path = folder / "hotpot_dev_distractor_v1.json"
    path.write_text(json.dumps(rows))
    return path
