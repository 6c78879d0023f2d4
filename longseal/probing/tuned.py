"""The model with an adapter, beside the model as it is."""

from __future__ import annotations

from contextlib import AbstractContextManager

from longseal.errors import LongsealError
from longseal.probing.case import case_of
from longseal.probing.measure import Measuring
from longseal.probing.result import Tuned
from longseal.scales import Adapter

_WHAT = "with the adapter"
_TRIED = 4  # questions, until one parts in more than its wording


def tuned(measuring: Measuring, adapter: Adapter, notes: list[str]) -> Tuned:
    """The model with an adapter: its scales, its answers, and a question that it alone solves."""
    model = measuring.model
    fitted = adapter.on(model.sites).scales
    scales = {str(head): values.mean().item() for head, values in fitted.by_head.items()}

    def attach() -> AbstractContextManager[None]:
        return adapter.attached(model)

    with attach():
        answered = measuring.unpruned(_WHAT, answered=True)
    case, gains = None, measuring.gains(_WHAT)
    if not gains:
        notes.append(
            "no question is answered better with the adapter than without, so that there is no "
            "case to look into: ask more with --samples, or at other --lengths"
        )
    for place, question in gains[:_TRIED]:
        encoded = place.encoded.only([question])
        try:
            tried = case_of(measuring.asking, encoded, place.length, attach)
        except LongsealError as error:
            notes.append(str(error))
            break
        case = case or tried
        if tried is not None and not tried.in_wording:
            case = tried
            break
    return Tuned(scales, tuple(answered), case)
