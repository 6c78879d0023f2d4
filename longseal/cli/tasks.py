"""`longseal tasks`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from pydantic import Field
from rich.table import Table
from rich.text import Text

from longseal.cli.app import Extended, Flat, app, console
from longseal.config import Depth, Length, TaskSettings
from longseal.errors import LongsealError

if TYPE_CHECKING:
    from longseal.models.tokenizer import TokenizerOnly
    from longseal.tasks import Question, Sample, Task
    from longseal.tasks.prompt import Prompts

AsJson = Annotated[bool, Parameter(name="--json", help="Print it as JSON.", negative=())]
group = App(name="tasks", help="List the tasks, explain one, or look at what it asks.")
app.command(group)


class SampleConfig(TaskSettings):
    """Which samples are made."""

    length: Annotated[
        Length, Parameter(help="Tokens of prompt and answer, such as 2k; a file's are as they are.")
    ] = 2048
    count: Annotated[
        int, Field(gt=0), Parameter(name=("--count", "-n"), help="Contexts to make.")
    ] = 1
    questions: Annotated[int, Field(gt=0), Parameter(help="Questions that share one context.")] = 1
    depth: Annotated[
        Depth | None, Parameter(help="Where the (first) answer stands: 0 the start, 1 the end.")
    ] = None
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0


_SAMPLE = SampleConfig()


@group.default
def tasks(family: str | None = None, /, *, as_json: AsJson = False) -> None:
    """List the tasks.

    ```
    longseal tasks
    longseal tasks ruler
    longseal tasks show lines
    longseal tasks sample lines --model my-model --length 2k
    ```

    Parameters
    ----------
    family
        Tell the tasks of one family apart. [default: a row a family]
    """
    from longseal.tasks import family_of, names

    wanted = None if family is None else family_of(family)
    rows = [
        {"name": name, "about": about, "source": family_of(name).source}
        for name, about in names()
        if wanted is None or family_of(name) is wanted
    ]
    if as_json:
        console.print_json(json.dumps(rows))
        return
    table = Table("task", "what it asks for", "source")
    families = dict.fromkeys(row["name"].partition("/")[0] for row in rows)
    for name in families if wanted is None else ():
        each = family_of(name)
        variants = f" ({', '.join(each.variants)})" if each.variants else ""
        table.add_row(name, Text(each.about + variants), Text(each.source))
    for row in rows if wanted is not None else ():
        table.add_row(*map(Text, row.values()))
    console.print(table)


@group.command
def show(
    name: str,
    /,
    *,
    data: Annotated[
        tuple[Path, ...], Parameter(help="File of samples; may be repeated.", negative=())
    ] = (),
    haystack: Annotated[Path | None, Parameter(help="Text to hide needles in.")] = None,
) -> None:
    """Explain a task: what it asks, what it is made of, how it is scored.

    ```
    longseal tasks show lines
    ```

    Parameters
    ----------
    name
        The task.
    """
    from longseal.tasks import family_of, names, task
    from longseal.tasks.sample import NoMaterialError

    facts = {"asks for": dict(names()).get(name, "")}
    try:
        facts |= _facts(task(name, data=data, haystack=haystack))
    except NoMaterialError as error:
        facts["needs a file"] = str(error)
    facts["takes"] = family_of(name).takes
    table = Table(title=Text(name), title_justify="left", show_header=False)
    for fact, value in facts.items():
        table.add_row(fact, Text(value))
    console.print(table)


@group.command
def sample(
    name: str,
    /,
    *,
    model: Annotated[
        str | None,
        Parameter(
            help="Hub id, folder or .gguf file; no weights are read. "
            "[default: SmolLM2-135M-Instruct]"
        ),
    ] = None,
    config: Annotated[SampleConfig, Flat] = _SAMPLE,
    extend: Extended = None,
    trust_remote_code: Annotated[
        bool, Parameter(help="Run Python code that comes with the tokenizer.", negative=())
    ] = False,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print a JSON object a question.", negative=())
    ] = False,
) -> None:
    """Print samples of a task as a model would be asked them: to read, or for another engine.

    ```
    longseal tasks sample lines --model my-model --length 2k --depth 0.5
    longseal tasks sample lines --model my-model --length 8k -n 50 --json > samples.jsonl
    ```

    Of a task that is made, they are those that `longseal evaluate` asks with the same seed (where
    it goes through no depths); of one that is read from files, the files' own in their order.

    In JSON, `prompt` is the whole text with chat template and answer prefix, and `messages` is for
    engines that have the template themselves (null where the task is asked without one). `length`
    counts the prompt's `tokens` and `max_new_tokens`. Add `prediction` to each line, and
    `longseal score` scores them.

    Parameters
    ----------
    name
        The task.
    """
    from longseal.models.tokenizer import load_tokenizer
    from longseal.tasks import task
    from longseal.tasks.prompt import Prompts

    wanted = task(name, data=config.data, haystack=config.haystack)
    loaded = load_tokenizer(model, trust_remote_code, extend, force=True)
    prompts = Prompts(loaded, config.thinking)
    for number, made in enumerate(_samples(wanted, prompts, loaded, config)):
        rows = [*_rows(wanted, prompts, made, config, number)]
        if as_json:
            sys.stdout.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            console.rule(Text(f"{wanted.name}, sample {number + 1}"), align="left")
            console.print(_readable(made, rows), soft_wrap=True)


def _facts(task: Task) -> dict[str, str]:
    from longseal.tasks import Recorded, Wanted

    if isinstance(task, Recorded):
        one, made_of = task.samples[0], f"{len(task.samples):,} samples of its files"
    else:
        one, made_of = task.sample(Wanted(task.smallest)), task.unit
    scores = ", ".join(task.score("", one.questions[0]))
    return {
        "source": task.source,
        "made of": made_of,
        "tokens for the answer": f"{task.max_new_tokens:,}",
        "judged by": task.metric,
        "scores": scores,
    }


def _samples(
    task: Task, prompts: Prompts, model: TokenizerOnly, config: SampleConfig
) -> Iterator[Sample]:
    from longseal.tasks import Recorded
    from longseal.tasks.fitting import check_window, fit

    if isinstance(task, Recorded):
        if config.depth is not None:
            raise LongsealError(f"--depth: the samples of {task.name} are given, not made")
        yield from islice(task.samples, config.count)
        return
    check_window(task, [config.length], model.window)
    for number in range(config.count):
        seed = f"test/{config.seed}/{task.name}/{config.length}/{number}"
        made = fit(prompts, task, config.length, config.questions, seed, depth=config.depth)
        yield made.source


def _rows(
    task: Task, prompts: Prompts, sample: Sample, config: SampleConfig, number: int
) -> Iterator[dict[str, Any]]:
    """The JSON object of each question of a sample."""
    from longseal.tasks import Recorded
    from longseal.tasks.fitting import budget

    given = isinstance(task, Recorded)
    depths = prompts.depths(sample)
    for place, question in enumerate(sample.questions):
        prompt = prompts.render(sample, question)
        tokens = len(prompts.tokens(prompt))
        kept = budget(task, prompts, question)
        yield {
            "task": task.name,
            "group": sample.group,
            "seed": None if given else config.seed,
            "context": number,
            "question": place,
            "prompt": prompt,
            "messages": _messages(sample, question),
            "prefix": "" if prompts.thinks else question.prefix,
            "answers": list(question.expected),
            "length": tokens + kept,
            "wanted_length": None if given else config.length,
            "tokens": tokens,
            "depth": depths[place],
            "wanted_depth": None if place else config.depth,
            "max_new_tokens": kept,
            "fields": dict(question.fields),
        }


def _messages(sample: Sample, question: Question) -> list[dict[str, str]] | None:
    if not sample.chat:
        return None
    turns = [*sample.before, ("user", sample.context + question.text)]
    return [{"role": role, "content": text} for role, text in turns]


def _readable(sample: Sample, rows: list[dict[str, Any]]) -> Text:
    """The context with its evidence marked, then each question and what is known of it."""
    text = Text()
    for role, turn in sample.before:
        text.append(f"{role}: {turn}\n", style="dim")
    context = Text(sample.context)
    for question in sample.questions:
        start = sample.context.find(question.evidence)
        if question.evidence and start >= 0:
            context.stylize("black on yellow", start, start + len(question.evidence))
    text.append_text(context)
    for question, row in zip(sample.questions, rows, strict=True):
        text.append(f"{question.text.rstrip()}\n", style="bold")
        depth = "" if row["depth"] is None else f", depth {row['depth']:.2f}"
        facts = {
            "prefix": row["prefix"],
            "answers": " | ".join(question.expected),
            "length": f"{row['length']:,} tokens, {row['max_new_tokens']:,} of them for the answer"
            f"{depth}",
        }
        for name, value in facts.items():
            if value:
                text.append(f"{name}: ", style="cyan").append(f"{value}\n")
    return text
