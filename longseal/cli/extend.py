"""`longseal extend`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from longseal.cli.app import Model, again, app, console, in_tokens
from longseal.config import LoadConfig


@app.command
def extend(
    model: Model = None,
    /,
    *,
    to: Annotated[str, Parameter(help="Length to reach, in tokens, such as 16k.")],
    force: Annotated[
        bool, Parameter(help="Extend a model too that scales its positions.", negative=())
    ] = False,
    trust_remote_code: Annotated[
        bool, Parameter(help="Run Python code that comes with the model.", negative=())
    ] = False,
) -> None:
    """Choose how to reach past a model's window, from its own settings; nothing is loaded.

    ```
    longseal extend my-model --to 16k
    ```

    Every command that takes a model takes what is chosen: `--extend yarn:2`.
    """
    from longseal.models.context.choose import choices
    from longseal.models.tokenizer import load_config
    from longseal.terminal import print_next

    wanted = in_tokens("--to", to)
    source, config, own = load_config(model, trust_remote_code)
    found = choices(config, wanted, force=force)
    title = f"{source}: {own:,} tokens by itself, {wanted:,} wanted"
    table = Table("--extend", "reaches", "served by", "why", title=title, title_justify="left")
    for each in found:
        if each.refused:
            table.add_row(each.extension.method, "-", "-", each.why)
            continue
        served = "any engine" if each.extension.in_config else "longseal"
        table.add_row(str(each.extension), f"{each.window:,}", served, each.why)
    console.print(table)
    first = next(each.extension for each in found if not each.refused)
    shown = again(source, LoadConfig(extend=str(first), force=force))
    print_next(console, next=f"longseal evaluate {shown} --lengths {own},{wanted}")
