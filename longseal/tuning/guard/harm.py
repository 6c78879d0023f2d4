"""What was lost beside the wanted tasks, and whether that is within a bound."""

from __future__ import annotations

from dataclasses import dataclass

from longseal.tuning.guard.measured import FormatScore, Measured, TextScore

_ROUNDING = 1e-9  # 0.1 + 0.2 - 0.3 is no loss


@dataclass(frozen=True)
class Harm:
    """The unchanged model and a changed one, measured on the same questions and texts."""

    base: Measured
    now: Measured

    @property
    def total(self) -> bool:
        """Whether the model gives no finite numbers any more."""
        return not self.now.finite

    @property
    def losses(self) -> dict[str, float]:
        """What each format lost, as a share of full marks (0.02: 2 points); gains are negative."""
        return {now.name: base.score - now.score for base, now in self._formats}

    @property
    def overall(self) -> float:
        """The mean loss of all formats, no gain counted for more than one answer."""
        counted = [max(self.losses[now.name], -now.worth) for _, now in self._formats]
        return sum(counted) / len(counted) if counted else 0.0

    @property
    def worsened(self) -> dict[str, float]:
        """How much each text's perplexity rose, as a share of the base's (0.02: 2%)."""
        return {now.name: now.perplexity / base.perplexity - 1 for base, now in self._texts}

    @property
    def worst_format(self) -> float:
        """The greatest loss of a format, 0 where none lost."""
        return max([0.0, *self.losses.values()])

    @property
    def worst_text(self) -> float:
        """The greatest rise of a text's perplexity, 0 where none rose."""
        return max([0.0, *self.worsened.values()])

    def within(self, bound: float) -> bool:
        """Whether no format lost more than `bound`, nor all of them together, nor any text.

        Few questions are asked, so that one answer (or part of one, where parts are counted) may be
        worth more than the bound. One, which chance flips, is forgiven: a format may lose `bound`
        or one answer, whichever is more, and so may the mean of all formats. Two lost answers are
        forgiven only where another format gained one: noise goes both ways. But a gain counts there
        for one answer at most, so a format that gains much does not pay for one that loses much.
        Perplexity is compared token by token on the same text, and nothing of it is forgiven.

        Args:
            bound: a share: 0.02 is 2 points of score, or 2% of perplexity.
        """
        if self.total:
            return False
        worth = {now.name: now.worth for _, now in self._formats}
        each = all(
            lost <= max(bound, worth[name]) + _ROUNDING for name, lost in self.losses.items()
        )
        one = max(worth.values(), default=0.0) / max(1, len(worth))
        together = self.overall <= max(bound, one) + _ROUNDING
        return each and together and self.worst_text <= bound + _ROUNDING

    @property
    def sentence(self) -> str:
        """What was paid."""
        if self.total:
            return "everything was paid: the model's predictions are not finite numbers any more"
        said = []
        if self._formats:
            said.append(self._of_formats())
        if self._texts:
            said.append(self._of_texts())
        reworded = sum(now.reworded for _, now in self._formats)
        if reworded:
            questions = sum(now.questions for _, now in self._formats)
            said.append(f"{reworded} of {questions} answers are as right in other words")
        return "; ".join(said) or "nothing was looked at"

    def _of_formats(self) -> str:
        lost = [(base, now) for base, now in self._formats if self.losses[now.name] > _ROUNDING]
        if not lost:
            return f"none of {_count(len(self._formats), 'other format')} lost anything"
        base, now = max(lost, key=lambda pair: self.losses[pair[1].name])
        return (
            f"{len(lost)} of {_count(len(self._formats), 'other format')} lost: most of all "
            f"{now.name}, {100 * self.worst_format:.1f} points ({base.score:.2f} to "
            f"{now.score:.2f}, {_count(now.questions, 'question')})"
        )

    def _of_texts(self) -> str:
        name = max(self.worsened, key=lambda text: self.worsened[text])
        change = 100 * self.worsened[name]
        return f"perplexity {change:+.1f}% on {'the worst text, ' * (len(self._texts) > 1)}{name}"

    @property
    def _formats(self) -> list[tuple[FormatScore, FormatScore]]:
        return list(zip(self.base.formats, self.now.formats, strict=True))

    @property
    def _texts(self) -> list[tuple[TextScore, TextScore]]:
        return list(zip(self.base.texts, self.now.texts, strict=True))


def harm(base: Measured, now: Measured) -> Harm:
    """Compare what a changed model can do with what the unchanged one could."""
    return Harm(base, now)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
