"""Measure what the model can do beside the wanted tasks, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from torch import Tensor

from longseal.errors import LongsealError
from longseal.files import Log
from longseal.models.load import LanguageModel
from longseal.tasks import Task
from longseal.tasks.prompt import Prompts
from longseal.tuning.guard.formats import Answered, Format, ask_all, default_formats, own_format
from longseal.tuning.guard.measured import FormatScore, Measured, TextScore
from longseal.tuning.guard.text import (
    Text,
    built_in_texts,
    own_text,
    predictions,
    text_score,
)

_EVENT, _TEXT = "guard", "guard text"


class Guard:
    """Other retrieval formats and general text, on which a model is measured as it stands.

    Formats are asked freely and judged by their own score: an answer in other words is no loss.
    Text is predicted token by token. None of it is trained on, chosen on, or in a test of the same
    seed. `base` comes first; it is what `measure` compares with.

    Args:
        wanted: names of the tasks that are tuned on: neither they nor formats alike are guarded.
        length: the wanted length; nothing that is measured is longer.
        unchanged: makes the model act unchanged inside the block, whatever is attached to it. It is
            used where a resumed run has the base's scores in its log, and needs its predictions.
        tasks: the user's formats, in the place of the built-in ones.
        texts: the user's text files, in the place of the built-in prose.
        window: tokens the model was made for.
        log: where measurements are kept; what it holds is not measured again.

    Raises:
        LongsealError: a user's task or text cannot be read, or cannot be made within `length`.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: Prompts,
        *,
        wanted: Sequence[str],
        length: int,
        unchanged: Callable[[], AbstractContextManager[object]],
        tasks: Sequence[Task] = (),
        texts: Sequence[Path] = (),
        window: int | None = None,
        seed: int = 0,
        log: Log | None = None,
    ) -> None:
        self._model, self._prompts, self._log = model, prompts, log
        self._unchanged = unchanged
        length = min(length, window or length)
        self.formats: list[Format] = (
            [own_format(prompts, task, length, window, seed) for task in tasks]
            if tasks
            else default_formats(prompts, wanted, length, seed)
        )
        self.texts: list[Text] = (
            [own_text(prompts, path, length) for path in texts]
            if texts
            else built_in_texts(prompts, length, seed)
        )
        self._predicted: list[list[Tensor]] | None = None  # by the unchanged model
        self._answered: list[Answered] = []
        self._texts_of: dict[str, tuple[TextScore, ...]] = {}

    def base(self) -> Measured:
        """Measure the model while it is unchanged.

        Raises:
            LongsealError: its predictions are not finite numbers.
        """
        known = self._read(_EVENT, {"base": True})
        if known is not None:
            self._answered = [
                Answered(tuple(each["scores"]), tuple(each["answers"]))
                for each in known["answered"]
            ]
            return Measured.from_json(known["measured"])
        self._predicted = self._predict()
        texts = [
            text_score(self._model, text, predicted, predicted)
            for text, predicted in zip(self.texts, self._predicted, strict=True)
        ]
        if not Measured((), tuple(texts)).finite:
            dtype = str(self._model.network.dtype).removeprefix("torch.")
            raise LongsealError(
                f"the model's own predictions are not finite numbers in {dtype}: load it in "
                "another --dtype"
            )
        self._answered = ask_all(self._model, self._prompts, self.formats)
        measured = self._measured(self._answered, texts)
        answered = [{"scores": each.scores, "answers": each.answers} for each in self._answered]
        self._keep(_EVENT, {"base": True}, measured, answered=answered)
        return measured

    def measure(self, key: Mapping[str, Any]) -> Measured:
        """Measure the model with what is attached to it now.

        Args:
            key: JSON values that tell what is attached; what the log has under it is not measured
                again.
        """
        known = self._read(_EVENT, key)
        if known is not None:
            return Measured.from_json(known["measured"])
        texts = self.texts_now(key)
        answered = None
        if Measured((), tuple(texts)).finite:
            answered = ask_all(self._model, self._prompts, self.formats)
        measured = self._measured(answered, texts)
        self._keep(_EVENT, key, measured)
        return measured

    def texts_now(self, key: Mapping[str, Any]) -> tuple[TextScore, ...]:
        """The texts' part of `measure`, which takes a fraction of its time."""
        name = repr(sorted(key.items()))
        if name in self._texts_of:
            return self._texts_of[name]
        known = self._read(_TEXT, key)
        if known is not None:
            return Measured.from_json(known["measured"]).texts
        if self._predicted is None:
            with self._unchanged():
                self._predicted = self._predict()
        texts = tuple(
            text_score(self._model, text, predicted)
            for text, predicted in zip(self.texts, self._predicted, strict=True)
        )
        self._texts_of[name] = texts
        self._keep(_TEXT, key, Measured((), texts))
        return texts

    def _predict(self) -> list[list[Tensor]]:
        return [predictions(self._model, text) for text in self.texts]

    def _measured(
        self, answered: Sequence[Answered] | None, texts: Sequence[TextScore]
    ) -> Measured:
        """Put scores together; all 0 where nothing could be answered."""
        blank = [Answered((0.0,) * len(b.scores), b.answers) for b in self._answered]
        found = blank if answered is None else answered
        formats = [
            _compared(each, base, now)
            for each, base, now in zip(self.formats, self._answered, found, strict=True)
        ]
        return Measured(tuple(formats), tuple(texts))

    def _read(self, event: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        known = [] if self._log is None else self._log.read(event=event, **key)
        return known[-1] if known else None

    def _keep(self, event: str, key: Mapping[str, Any], measured: Measured, **more: Any) -> None:
        if self._log is not None:
            self._log.append({"event": event, **key, "measured": measured.to_json(), **more})


def _compared(asked: Format, base: Answered, now: Answered) -> FormatScore:
    pairs = list(zip(base.scores, now.scores, strict=True))
    texts = zip(base.answers, now.answers, pairs, strict=True)
    return FormatScore(
        name=asked.task.name,
        score=sum(now.scores) / len(pairs),
        questions=len(pairs),
        worth=asked.worth,
        gained=sum(after > before for before, after in pairs),
        lost=sum(after < before for before, after in pairs),
        reworded=sum(said != says and before == after for said, says, (before, after) in texts),
    )
