"""Measure variants on the contexts of all lengths; what a log holds already is not run again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from longseal.config import ProbeConfig
from longseal.files import Log
from longseal.intervals import change_interval, mean_interval
from longseal.models.load import LanguageModel
from longseal.models.sites import Head, seats
from longseal.probing.answers import Answers, Asking
from longseal.probing.gradient import slopes
from longseal.probing.heads import Variant
from longseal.probing.looks import Look, looks, mean_looks
from longseal.probing.places import Place, asked
from longseal.probing.pruning import Pruning
from longseal.probing.result import Answered, How, Influence, Looks
from longseal.progress import Bar
from longseal.tasks import Task
from longseal.tasks.prompt import EncodedSample, Prompts

_SINGLE = re.compile(r"L(\d+)H(\d+)(?:C\d+)?")

_Line = Mapping[str, Any]


@dataclass
class Measuring:
    """What variants do to the answers of a model to some questions."""

    model: LanguageModel
    asking: Asking
    places: Sequence[Place]
    log: Log | None
    bar: Bar
    part: str = "probe"
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        task: Task,
        config: ProbeConfig,
        log: Log | None,
        bar: Bar,
        part: str = "probe",
    ) -> Measuring:
        """Make the questions, and take up what the log holds.

        Args:
            part: names the samples: those of one part are not those of another.
        """
        prompts = Prompts(model, config.thinking)
        places = asked(task, prompts, config, model.window, part)
        made = cls(model, Asking(model, task, prompts), places, log, bar, part)
        for line in [] if log is None else log.read(event="probed", part=part):
            made._known[_key(line["what"], line)] = line
        return made

    def unpruned(self, what: str = "base", *, answered: bool) -> list[Answered]:
        """The model as it stands, at each length.

        Args:
            what: what it is kept as; "base" is what pruned heads are compared with.
        """
        work = self.bar.add_task(
            "the model as it is" if what == "base" else what, total=len(self.places)
        )
        for place in self.places:
            if self._line(what, place) is None:
                found = Pruning(self.asking, place.encoded, answered=answered).base()
                self._keep(what, place, found)
            self.bar.advance(work)
        return [self.answered(what, length) for length in self.lengths]

    def answered(self, what: str, length: int) -> Answered:
        """How well what was measured answers at one length."""
        lines = self._of(length, what)
        values = [value for line in lines for value in line["log_probabilities"]]
        scores = [score for line in lines for score in line["scores"]]
        return Answered(
            length,
            mean(values),
            mean(scores) if scores else None,
            len(values),
            mean_interval(scores) if scores else None,
        )

    def gains(self, what: str) -> list[tuple[Place, int]]:
        """Questions that `what` answers better than the base, the greatest gain first."""
        found = []
        for place in self.places:
            base, line = self._line("base", place), self._line(what, place)
            assert base is not None
            assert line is not None
            for question, (before, now) in enumerate(
                zip(base["scores"], line["scores"], strict=True)
            ):
                found.append((now - before, place, question))
        found.sort(key=lambda each: -each[0])
        return [(place, question) for gain, place, question in found if gain > 0]

    def looks(self) -> list[Looks]:
        """Where each head looks at each length, while the first question of each context is read.

        Raises:
            LongsealError: the model does not show it.
        """
        work = self.bar.add_task("where heads look", total=len(self.places))
        by_length: dict[int, list[list[Look]]] = {}
        for place in self.places:
            line = self._line("looks", place)
            if line is None:
                line = self._write("looks", place, {"heads": self._looks(place.encoded)})
            seen = [Look(Head.of(name), *figures) for name, figures in line["heads"].items()]
            by_length.setdefault(place.length, []).append(seen)
            self.bar.advance(work)
        return [Looks(length, mean_looks(seen)) for length, seen in by_length.items()]

    def _looks(self, encoded: EncodedSample) -> dict[str, tuple[float, float, float | None]]:
        source = encoded.source
        evidence = self.asking.prompts.evidence(source, source.questions[0])
        seen = looks(self.model, encoded.prompt(0), encoded.answers[0], evidence)
        return {str(look.head): (look.distance, look.first, look.copies) for look in seen}

    @property
    def lengths(self) -> list[int]:
        """All lengths, in order."""
        return list(dict.fromkeys(place.length for place in self.places))

    def pruned(self, how: How, variants: Sequence[Variant], *, answered: bool) -> list[Influence]:
        """The influence of each variant at each length, exactly or at the tail."""
        work = self.bar.add_task(how, total=len(variants) * len(self.places))
        for place in self.places:
            missing = [v for v in variants if self._line(f"{how} {v.name}", place) is None]
            self.bar.advance(work, len(variants) - len(missing))
            if not missing:
                continue
            pruning = Pruning(self.asking, place.encoded, answered=answered, tail=how == "tail")
            for variant, answers in pruning.of(missing):
                self._keep(f"{how} {variant.name}", place, answers)
                self.bar.advance(work)
        return [
            self._influence(how, variant.name, length)
            for length in self.lengths
            for variant in variants
        ]

    def slopes(self, channels_of: Head | None) -> Mapping[tuple[int, str], list[float]]:
        """First-order changes when a head is pruned, by length and name, one of each context.

        Args:
            channels_of: a head whose channels are looked at too.
        """
        work = self.bar.add_task("gradient", total=len(self.places))
        found: dict[tuple[int, str], list[float]] = {}
        what = "slopes" if channels_of is None else f"slopes {channels_of}"
        for place in self.places:
            line = self._line(what, place)
            if line is None:
                line = self._write(what, place, {"changes": self._changes(place, channels_of)})
            for name, change in line["changes"].items():
                found.setdefault((place.length, name), []).append(change)
            self.bar.advance(work)
        return found

    def _changes(self, place: Place, channels_of: Head | None) -> dict[str, float]:
        made = slopes(self.model, place.encoded)
        changes = {}
        for head, (site, number) in seats(self.model.sites).items():
            slope = made[site.name][number]
            changes[str(head)] = -slope.sum().item()
            if head == channels_of:
                changes |= {f"{head}C{c}": -value for c, value in enumerate(slope.tolist())}
        return changes

    def _influence(self, how: How, name: str, length: int) -> Influence:
        pairs = list(zip(self._of(length, "base"), self._of(length, f"{how} {name}"), strict=True))
        changes = _changes(pairs, "log_probabilities")
        scores = _changes([pair for pair in pairs if pair[1]["scores"]], "scores")
        return influence(how, name, length, changes, mean(scores) if scores else None)

    def _of(self, length: int, what: str) -> list[dict[str, Any]]:
        lines = [self._line(what, place) for place in self.places if place.length == length]
        return [line for line in lines if line is not None]

    def _line(self, what: str, place: Place) -> dict[str, Any] | None:
        return self._known.get(_key(what, place.key))

    def _keep(self, what: str, place: Place, answers: Answers) -> None:
        values = {"log_probabilities": answers.log_probabilities, "scores": answers.scores}
        self._write(what, place, values)

    def _write(self, what: str, place: Place, values: Mapping[str, Any]) -> dict[str, Any]:
        line = {"event": "probed", "part": self.part, "what": what, **place.key, **values}
        self._known[_key(what, line)] = line
        if self.log is not None:
            self.log.append(line)
        return line


def _changes(pairs: Sequence[tuple[_Line, _Line]], name: str) -> list[float]:
    """Of each question, what a variant has more than the base."""
    return [
        now - before
        for base, line in pairs
        for before, now in zip(base[name], line[name], strict=True)
    ]


def influence(
    how: How, name: str, length: int, changes: Sequence[float], accuracy: float | None
) -> Influence:
    """The mean of the changes, with its interval."""
    match = _SINGLE.fullmatch(name)
    layer, head = (int(match[1]), int(match[2])) if match else (None, None)
    low, high = change_interval(changes) or (None, None)
    return Influence(
        name, layer, head, length, how, mean(changes), low, high, accuracy, len(changes)
    )


def _key(what: str, place: Mapping[str, Any]) -> str:
    return f"{what} {place['length']} {place['context']}"
