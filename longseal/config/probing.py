"""How heads are looked at."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import Field

from longseal.config.kinds import Lengths, Method
from longseal.config.settings import TaskSettings


class ProbeConfig(TaskSettings):
    """Which heads are looked at, how, and on what questions."""

    task: Annotated[str, Parameter(help="A task (longseal tasks lists them), or a task file.")] = (
        "lines"
    )
    lengths: Annotated[
        Lengths, Parameter(help="Prompt lengths in tokens, such as 1k,2k.", negative=())
    ] = (1024, 2048)
    method: Annotated[
        Method,
        Parameter(
            help="exact prunes each head in turn; gradient estimates all at once; tail prunes from "
            "the question on; audit estimates all and confirms some."
        ),
    ] = "audit"
    prune: Annotated[
        tuple[str, ...],
        Parameter(
            help="Heads to prune together, such as L1H18,L13H16, L5 (a layer) or L5G2 (a key-value "
            "group), in the place of every head by itself; may be repeated.",
            negative=(),
        ),
    ] = ()
    channels: Annotated[
        str | None, Parameter(help="A head, such as L1H18, whose channels are looked at instead.")
    ] = None
    looks: Annotated[
        bool,
        Parameter(
            help="Watch how far back each head looks, how much at the first tokens, and how often "
            "it copies from the evidence; relate that to its influence.",
            negative=(),
        ),
    ] = False
    quadrants: Annotated[
        bool,
        Parameter(
            help="Part the heads by their influence at the two greatest lengths, and rescale "
            "quadrants.",
            negative=(),
        ),
    ] = False
    rescale: Annotated[
        tuple[str, ...],
        Parameter(
            help="Factors of quadrants (Q1: better without them at both lengths; Q3: worse), such "
            "as Q1:0.9,Q3:1.1; may be repeated.",
            negative=(),
        ),
    ] = ("Q1:0.9", "Q3:0.9", "Q1:0.9,Q3:1.1")
    samples: Annotated[int, Field(gt=0), Parameter(help="Questions at each length.")] = 8
    questions: Annotated[int, Field(gt=0), Parameter(help="Questions that share one context.")] = 4
    ends: Annotated[
        int, Field(gt=0), Parameter(help="Of an audit: how many of the lowest and of the highest.")
    ] = 6
    drawn: Annotated[
        int, Field(ge=0), Parameter(help="Of an audit: how many of the rest, at random.")
    ] = 12
    seed: Annotated[int, Field(ge=0), Parameter(help="Seed of everything random.")] = 0
