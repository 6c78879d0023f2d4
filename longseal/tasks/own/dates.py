"""Dates and times in the patterns that people write them in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_SHORT = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_D, _M, _Y = r"(?:0[1-9]|[12]\d|3[01])", r"(?:0[1-9]|1[0-2])", r"(?:19|20)\d\d"
_ONE_D, _ONE_M = r"(?:[12]\d|3[01]|[1-9])", r"(?:1[0-2]|[1-9])"
_H, _S = r"(?:[01]\d|2[0-3])", r"[0-5]\d"


@dataclass(frozen=True)
class Form:
    """A way to write a date or a time: how it is found, and how it is written (`t` the date)."""

    pattern: str
    written: str
    clock: bool = False

    def write(self, when: datetime) -> str:
        """The date in this form."""
        return self.written.format(t=when, ms=when.microsecond // 1000)


def _form(pattern: str, written: str, *, clock: bool = False) -> Form:
    return Form(rf"(?<!\w){pattern}(?!\w)", written, clock)


#: By an example; the longer before what they begin with.
DATES: dict[str, Form] = {
    "2024-03-05T07:08:09.123Z": _form(
        rf"{_Y}-{_M}-{_D}T{_H}:{_S}:{_S}\.\d{{3}}Z", "{t:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z", clock=True
    ),
    "2024-03-05T07:08:09Z": _form(
        rf"{_Y}-{_M}-{_D}T{_H}:{_S}:{_S}Z", "{t:%Y-%m-%dT%H:%M:%SZ}", clock=True
    ),
    "2024-03-05T07:08:09": _form(
        rf"{_Y}-{_M}-{_D}T{_H}:{_S}:{_S}", "{t:%Y-%m-%dT%H:%M:%S}", clock=True
    ),
    "2024-03-05 07:08:09,123": _form(
        rf"{_Y}-{_M}-{_D} {_H}:{_S}:{_S},\d{{3}}", "{t:%Y-%m-%d %H:%M:%S},{ms:03d}", clock=True
    ),
    "2024-03-05 07:08:09.123": _form(
        rf"{_Y}-{_M}-{_D} {_H}:{_S}:{_S}\.\d{{3}}", "{t:%Y-%m-%d %H:%M:%S}.{ms:03d}", clock=True
    ),
    "2024-03-05 07:08:09": _form(
        rf"{_Y}-{_M}-{_D} {_H}:{_S}:{_S}", "{t:%Y-%m-%d %H:%M:%S}", clock=True
    ),
    "2024-03-05 07:08": _form(rf"{_Y}-{_M}-{_D} {_H}:{_S}", "{t:%Y-%m-%d %H:%M}", clock=True),
    "2024-03-05": _form(rf"{_Y}-{_M}-{_D}", "{t:%Y-%m-%d}"),
    "2024/03/05": _form(rf"{_Y}/{_M}/{_D}", "{t:%Y/%m/%d}"),
    "25/03/2024": _form(rf"{_D}/{_M}/{_Y}", "{t:%d/%m/%Y}"),
    "03/25/2024": _form(rf"{_M}/{_D}/{_Y}", "{t:%m/%d/%Y}"),
    "25.03.2024": _form(rf"{_D}\.{_M}\.{_Y}", "{t:%d.%m.%Y}"),
    "5.3.2024": _form(rf"{_ONE_D}\.{_ONE_M}\.{_Y}", "{t.day}.{t.month}.{t:%Y}"),
    "3/5/2024": _form(rf"{_ONE_M}/{_ONE_D}/{_Y}", "{t.month}/{t.day}/{t:%Y}"),
    "05-Mar-2024": _form(rf"{_D}-(?:{_SHORT})-{_Y}", "{t:%d-%b-%Y}"),
    "March 5, 2024": _form(rf"(?:{_MONTHS}) {_ONE_D}, {_Y}", "{t:%B} {t.day}, {t:%Y}"),
    "5 March 2024": _form(rf"{_ONE_D} (?:{_MONTHS}) {_Y}", "{t.day} {t:%B} {t:%Y}"),
    "Mar 5, 2024": _form(rf"(?:{_SHORT}) {_ONE_D}, {_Y}", "{t:%b} {t.day}, {t:%Y}"),
    "5 Mar 2024": _form(rf"{_ONE_D} (?:{_SHORT}) {_Y}", "{t.day} {t:%b} {t:%Y}"),
    # No word ends between a numeral and an ideograph, so no boundary is asked for here.
    "2024年03月05日": Form(rf"{_Y}年{_M}月{_D}日", "{t:%Y}年{t:%m}月{t:%d}日"),
    "2024年3月5日": Form(rf"{_Y}年{_ONE_M}月{_ONE_D}日", "{t:%Y}年{t.month}月{t.day}日"),
    "07:08:09": _form(rf"{_H}:{_S}:{_S}", "{t:%H:%M:%S}", clock=True),
    "07:08": _form(rf"{_H}:{_S}", "{t:%H:%M}", clock=True),
}


def form_of(text: str) -> str:
    """The name of the form that a date is written in."""
    return next(name for name, form in DATES.items() if re.fullmatch(form.pattern, text))


def moment(text: str) -> datetime:
    """When a date is, to the second, in one of the forms with the year first."""
    year, month, day, *clock = map(int, re.findall(r"\d+", text)[:6])
    hour, minute, second = (*clock, 0, 0, 0)[:3]
    return datetime(year, month, day, hour, minute, second)
