"""`longseal fold`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longseal.cli.app import Flat, again, app, console, load_adapter, load_model
from longseal.config import LoadConfig, Projection


@app.command
def fold(
    model: str,
    adapter: Path,
    out: Path,
    /,
    *,
    projection: Projection = "output",
    check: Annotated[bool, Parameter(negative=())] = False,
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
) -> None:
    """Write an adapter into the model's own weights, as a new folder.

    ```
    longseal fold my-model runs/lines/adapter my-model-sealed
    longseal fold my-model runs/lines/adapter my-model-sealed --check
    longseal fold model.gguf runs/lines/adapter my-model-sealed
    ```

    The files are copied and only what the adapter changes is rewritten: scales multiply the output
    projections; a lora or dora adapter is merged by PEFT into the query, key, value and output
    projections. No model is loaded, but for a .gguf file, for --check and for an --extend that is
    not the adapter's own. The flags for loading count then. An extension (`--extend`, here or when
    the adapter was tuned) is written into the config where that can say it, so that engines serve
    it without a flag.

    Parameters
    ----------
    model
        Hub id, folder or .gguf file.
    adapter
        Folder of the adapter.
    out
        Folder to make; it must not exist yet.
    projection
        Fold scales into the output projections, or into the values where that is exact too.
    check
        Load the base and the result and compare their logits.
    """
    from longseal.fold import check_target
    from longseal.fold import fold as write
    from longseal.models.context.folded import written_extension
    from longseal.record import extension
    from longseal.terminal import print_next

    loaded = load_adapter(adapter)
    check_target(out)
    needed = check or loaded.base_fingerprint is None or model.endswith(".gguf")
    extend = extension(loaded.record)
    if loading.extend is not None:
        needed = needed or loading.extend != str(extend)  # the adapter does not say it: the model
    elif extend is not None:
        loading = loading.model_copy(update={"extend": str(extend), "force": True})
    base = load_model(model, loading) if needed else model
    with console.status("folding"):
        folded = write(base, loaded, out, projection=projection, check=check)
    done = (
        f"{loaded.kind} merged by PEFT into all query, key, value and output projections"
        if folded.projection is None
        else f"folded into the {folded.projection} projections"
    )
    console.print(
        f"{done}; rounding: at most "
        f"{folded.rounding:.1e} of a tensor's largest weight, "
        f"{folded.rounding_rms:.1e} of the weights in root mean square"
    )
    if folded.logit_difference is not None:
        difference = f"{folded.logit_difference:.1e}"
        console.print(f"largest difference between folded and hooked logits: {difference}")
    written = written_extension(str(out))
    left = None if written is None or written.in_config else str(written.extension)
    after = LoadConfig(extend=left)
    if folded.note is not None:
        console.print(f"note: {folded.note}", soft_wrap=True, highlight=False)
    print_next(console, folded_model=out, next=f"longseal evaluate {again(str(out), after)}")
