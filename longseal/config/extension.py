"""Ways to reach past a model's window without training, as a flag names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

Method = Literal["ntk", "linear", "dynamic", "yarn", "self-extend"]
#: So few digits that what is written can be read again.
_SCALED = re.compile(r"(ntk|linear|dynamic|yarn):(\d{1,6}(?:\.\d{1,6})?)")
_GROUPED = re.compile(r"self-extend:(\d{1,6}):(\d{1,9})(k?)")


@dataclass(frozen=True)
class Extension:
    """A method and its settings.

    Attributes:
        factor: how many times the own window is reached; 1 for Self-Extend.
        group, neighbours: of Self-Extend: positions that become one, and the tokens at whose
            distance that begins; 1 and 0 for the others.
    """

    method: Method
    factor: float = 1.0
    group: int = 1
    neighbours: int = 0

    @classmethod
    def parse(cls, text: str) -> Extension:
        """Read what a flag says.

        Raises:
            ValueError: it is no extension.

        >>> Extension.parse("ntk:4")
        Extension(method='ntk', factor=4.0, group=1, neighbours=0)
        >>> str(Extension.parse("self-extend:8:1k"))
        'self-extend:8:1024'
        """
        scaled, grouped = _SCALED.fullmatch(text.strip()), _GROUPED.fullmatch(text.strip())
        if scaled and float(scaled[2]) > 1:
            method: Method = scaled[1]  # type: ignore[assignment]  # one of the regex's words
            return cls(method, float(scaled[2]))
        if grouped:
            neighbours = int(grouped[2]) * (1024 if grouped[3] else 1)
            if int(grouped[1]) > 1 and neighbours:
                return cls("self-extend", group=int(grouped[1]), neighbours=neighbours)
        raise ValueError(
            f"{text!r} is no extension: write ntk:4, linear:4, dynamic:4, yarn:4 (a factor above "
            "1) or self-extend:8:1024 (a group of 2 or more, and neighbours)"
        )

    def __str__(self) -> str:
        if self.method == "self-extend":
            return f"{self.method}:{self.group}:{self.neighbours}"
        return f"{self.method}:{self.factor:.15g}"

    @property
    def in_config(self) -> bool:
        """Whether a model's config can say it, so that any engine serves it without a flag."""
        return self.method in ("ntk", "linear", "yarn")

    def window(self, own: int) -> int:
        """Tokens that a model reaches with it.

        Of Self-Extend, those whose grouped positions all lie in the own window (integers:
        `group * (own - neighbours + neighbours // group)`; where the group divides the neighbours
        that is the paper's `(own - neighbours) * group + neighbours`).

        Args:
            own: the model's own window.
        """
        if self.method == "self-extend":
            reach = own - self.neighbours + self.neighbours // self.group
            return self.group * reach if self.neighbours < own else own
        return int(own * self.factor)


def _known(text: str) -> str:
    return str(Extension.parse(text))


#: An extension as text, such as "ntk:4".
Extend = Annotated[str, AfterValidator(_known)]
