"""Keep warnings of the libraries that models are read and run by away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Let transformers and huggingface_hub log errors only."""
    loggers = (transformers_logging, hub_logging)
    before = [logger.get_verbosity() for logger in loggers]
    for logger in loggers:
        logger.set_verbosity_error()
    try:
        yield
    finally:
        for logger, verbosity in zip(loggers, before, strict=True):
            logger.set_verbosity(verbosity)
