"""The words of an answer, as LongBench and LV-Eval tell them apart to compare answers."""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from longseal.errors import LongsealError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_ASCII_MARKS = dict.fromkeys(map(ord, string.punctuation))
_NO_MARKS = _NO_ASCII_MARKS | dict.fromkeys(
    map(
        ord,
        "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟"
        "〰〾〿–—‘’‛“”„‟…‧﹏",
    )
)


def english(text: str) -> list[str]:
    """Words in lower case, ASCII punctuation and articles left out.

    >>> english("The Dolores-Park, a park")
    ['dolorespark', 'park']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_NO_ASCII_MARKS)).split()


def chinese(text: str) -> list[str]:
    """Words as jieba cuts them, in lower case, without punctuation and spaces.

    Raises:
        LongsealError: jieba is not installed.
    """
    words = ("".join(w.lower().translate(_NO_MARKS).split()) for w in _cutter().cut(text))
    return [word for word in words if word]


WORDS: Mapping[str, Callable[[str], list[str]]] = {"en": english, "zh": chinese}


@cache
def _cutter() -> Any:
    """A tokenizer with jieba's own dictionary, whatever else in the program adds words to its."""
    try:
        import jieba
    except ImportError as error:
        raise LongsealError(
            "Chinese answers are compared word by word, and words are told apart by jieba: "
            "pip install longseal[zh]"
        ) from error
    jieba.setLogLevel(logging.WARNING)
    return jieba.Tokenizer()
