"""`longseal fold`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from longseal.cli.app import Flat, app, console, load_model
from longseal.config import LoadConfig


@app.command
def fold(
    model: str,
    adapter: Path,
    out: Path,
    /,
    *,
    loading: Annotated[LoadConfig, Flat] = LoadConfig(),
) -> None:
    """Write an adapter's scales into the model's own weights, as a new folder.

    ```
    longseal fold my-model runs/lines/adapter my-model-sealed
    longseal fold model.gguf runs/lines/adapter my-model-sealed
    ```

    Parameters
    ----------
    model
        Hub id, folder or .gguf file.
    adapter
        Folder of the adapter.
    out
        Folder to make; it must not exist yet.
    """
    from longseal.fold import check_target
    from longseal.fold import fold as write
    from longseal.scales import Adapter
    from longseal.terminal import print_next

    scales = Adapter.load(adapter)
    check_target(out)
    loaded = load_model(model, loading)
    with console.status("folding"):
        folded = write(loaded, scales, out)
    console.print(
        f"largest difference between folded and hooked logits: {folded.logit_difference:.1e}, "
        f"largest rounding of a weight: {folded.rounding:.1e} of its tensor's largest"
    )
    print_next(console, folded_model=out, next=f"longseal evaluate {out}")
