"""`longseal generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from cyclopts import Parameter

from longseal.cli.app import Extended, Model, app, console, in_tokens
from longseal.errors import LongsealError


@app.command
def generate(
    *,
    like: Path,
    samples: Annotated[int, Parameter(name=("--samples", "-n"))] = 50,
    length: str = "16k",
    out: Path | None = None,
    model: Model = None,
    keep: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    vary: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    writer: str | None = None,
    haystack: Path | None = None,
    seed: int = 0,
    extend: Extended = None,
    trust_remote_code: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    report_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make samples in your own format, from as few as one example.

    ```
    longseal generate --like examples.jsonl --dry-run
    longseal generate --like examples.jsonl -n 50 --length 16k --out invoices.jsonl
    longseal generate --like examples.jsonl --keep EUR --vary "Section [A-Z]+" --out mine.jsonl
    ```

    An example is a line of JSON with context, question and answer, or with messages (a chat whose
    last turn is the answer). What varies in it is drawn anew and the rest kept to the letter. The
    file that is made is a task: longseal tune my-model --task mine.jsonl

    Parameters
    ----------
    like
        File of examples, JSON lines.
    samples
        Samples to make.
    length
        Tokens of a prompt with its answer, such as 16k.
    out
        Task file to write. [default: NAME-task.jsonl, NAME the examples' file]
    keep
        Text or regular expression that is format; may be repeated.
    vary
        Text or regular expression that is content; may be repeated.
    writer
        Model, or URL of an OpenAI-compatible endpoint, that writes names and sentences of what is
        asked for.
    haystack
        Text file, or folder of them, that prose is taken from. [default: built in]
    seed
        Seed of everything random.
    extend
        What lets the model reach past its window, such as yarn:4.
    trust_remote_code
        Run Python code that comes with the model's tokenizer.
    dry_run
        Say what was taken for format and what for content, and make nothing.
    report_json
        Print that report as JSON.
    overwrite
        Replace the file.
    """
    from longseal.progress import bars
    from longseal.tasks.haystack import read_haystack
    from longseal.tasks.own import report
    from longseal.tasks.own.examples import read_examples
    from longseal.tasks.own.file import Header, write_task_file
    from longseal.tasks.own.generate import check_examples
    from longseal.tasks.own.generate import generate as make
    from longseal.tasks.own.induce import induce
    from longseal.terminal import print_next

    wanted = in_tokens("--length", length)
    if samples < 1:
        raise LongsealError("-n has to be at least 1")
    target = out or like.with_name(f"{like.stem}-task.jsonl")
    if not dry_run and target.exists() and not overwrite:
        raise LongsealError(f"{target} is there already: add --overwrite, or name another --out")
    if target.suffix != ".jsonl":
        raise LongsealError(
            f"{target} has to end with .jsonl: that is how --task knows a task file"
        )
    if target.resolve() == like.resolve():
        raise LongsealError(f"{target} holds the examples: name another file with --out")
    examples = read_examples(like)
    induced = induce(examples, keep=keep, vary=vary)
    if report_json:
        print(json.dumps(report.as_json(induced), indent=2, ensure_ascii=False))  # noqa: T201
    else:
        console.print(report.table(induced))
    if induced.format.prose and haystack is None and not report_json:
        console.print(
            "The contexts are prose: other prose takes its place, in English. "
            "--haystack names a text of your own."
        )
    if dry_run:
        return

    from longseal.models.tokenizer import load_tokenizer
    from longseal.tasks.fitting import check_window
    from longseal.tasks.own.task import OwnTask
    from longseal.tasks.prompt import Prompts

    with console.status(f"loading the tokenizer of {model or 'the default model'}"):
        speaks = load_tokenizer(model, trust_remote_code, extend, force=True)
    prompts = Prompts(speaks)
    check_examples(examples, prompts, speaks.window)
    check_window(OwnTask(target.stem, induced.format), [wanted], speaks.window)
    author = None
    if writer is not None:
        from longseal.tasks.own.writer import open_writer

        with console.status("opening the writer"):
            author = open_writer(writer)
    with bars(console) as bar:
        stage = bar.add_task("samples", total=samples)
        made = make(
            induced,
            examples,
            prompts,
            name=target.stem,
            samples=samples,
            length=wanted,
            seed=seed,
            haystack=None if haystack is None else read_haystack(haystack),
            writer=author,
            done=lambda: bar.advance(stage),
        )
    # What a model wrote cannot be drawn again: such a file has its samples alone.
    header = Header(
        name=target.stem,
        format=None if author is not None else induced.format,
        writer=None if writer is None else _shown(writer),
        made={"samples": samples, "length": wanted, "seed": seed, "tokenizer": speaks.source},
    )
    write_task_file(target, header, made.samples)
    if not report_json:
        shortest, longest = min(made.lengths), max(made.lengths)
        print_next(
            console,
            made=f"{samples} samples of {shortest:,} to {longest:,} tokens, none of the examples' "
            f"content in them: {target}",
            next=f"longseal tune {model or ''} --task {target} --length {wanted}".replace(
                "  ", " "
            ),
        )


def _shown(writer: str) -> str:
    """A writer's name; a name and password in a URL are the user's secrets."""
    parts = urlsplit(writer)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
