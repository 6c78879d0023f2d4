"""Language models that write: behind a URL, or here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import torch
from transformers import GenerationConfig

from longseal.errors import LongsealError
from longseal.models.load import LanguageModel, load
from longseal.tasks.prompt import Prompts
from longseal.tasks.sample import Question, Sample

if TYPE_CHECKING:
    from openai import OpenAI

_NEW_TOKENS = 256  # what is asked for is a phrase or a paragraph
_SHOWN = 200  # characters of a server's own error


class Writer(Protocol):
    """Follows instructions."""

    def write(self, instruction: str, seed: int) -> str:
        """The reply; the same seed gives the same one, as far as the model's server can do so."""
        ...


def open_writer(name: str) -> Writer:
    """A writer by name.

    Args:
        name: the URL of an OpenAI-compatible server, such as `http://localhost:8000/v1`, with
            `#MODEL` where the first model that it lists is not meant; or a model as `load` takes.

    Raises:
        LongsealError: nothing usable is there.
    """
    if name.startswith(("http://", "https://")):
        return ServedWriter(name)
    return LocalWriter(load(name))


class ServedWriter:
    """A model behind an OpenAI-compatible URL; OPENAI_API_KEY is sent where it is set."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/") or "/v1"
        self._base = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        # A name and password in the URL are the user's secrets.
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
        self._secrets = [secret for secret in (_key(), parts.password) if secret]
        self._client = self._connect()
        self._model = parts.fragment or self._first_model()

    def write(self, instruction: str, seed: int) -> str:
        """Ask for one reply."""
        import openai

        messages = [{"role": "user", "content": instruction}]
        ask: Any = self._client.chat.completions.create
        try:
            try:
                reply = ask(model=self._model, messages=messages, seed=seed)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if "seed" not in str(error):
                    raise
                reply = ask(model=self._model, messages=messages)
        except openai.OpenAIError as error:
            raise self._failed(error) from None
        try:
            text = reply.choices[0].message.content or ""
        except (AttributeError, IndexError, TypeError):
            raise LongsealError(
                f"the writer at {self._shown} did not answer as chat completions do: check the URL"
            ) from None
        return str(text).rpartition("</think>")[2].strip()

    def _connect(self) -> OpenAI:
        try:
            from openai import OpenAI
        except ImportError as error:
            raise LongsealError(
                "a writer behind a URL needs the openai package: pip install 'longseal[writer]'"
            ) from error
        return OpenAI(base_url=self._base, api_key=_key() or "none")

    def _first_model(self) -> str:
        from openai import OpenAIError

        try:
            listed = [model.id for model in self._client.models.list()]
        except OpenAIError as error:
            raise self._failed(error) from None
        except (AttributeError, TypeError, ValueError):
            listed = []
        if not listed:
            raise LongsealError(
                f"the server at {self._shown} lists no model: name one as {self._shown}#MODEL"
            )
        return str(listed[0])

    def _failed(self, error: Exception) -> LongsealError:
        """What went wrong in a line, with no secret in it: servers repeat keys they refuse."""
        said = " ".join(str(error).split())
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return LongsealError(f"the writer at {self._shown} failed: {said[:_SHOWN]}")


class LocalWriter:
    """A model of this process, sampled."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._prompts = Prompts(model)
        stop = self._prompts.stop_tokens
        # In the place of the model's own, which would fill in what is not set here.
        model.network.generation_config = GenerationConfig(
            do_sample=True,
            temperature=0.8,
            top_p=0.95,
            top_k=0,
            max_new_tokens=_NEW_TOKENS + self._prompts.thinking,
            eos_token_id=stop,
            pad_token_id=stop[0],
        )

    def write(self, instruction: str, seed: int) -> str:
        """Draw a reply; the random state outside is left as it is."""
        sample = Sample("", (Question(instruction, "", ()),))
        tokens = self._prompts.tokens(self._prompts.render(sample, sample.questions[0]))
        row = torch.tensor([tokens], device=self._model.device)
        generate: Any = self._model.network.generate
        kind = self._model.device.type
        devices = [] if kind == "cpu" else [self._model.device.index or 0]
        with torch.random.fork_rng(devices, device_type="cuda" if kind == "cpu" else kind):
            torch.manual_seed(seed)
            said = generate(input_ids=row, attention_mask=torch.ones_like(row))[0, len(tokens) :]
        return self._prompts.decode(said.tolist())[0].strip()


def _key() -> str | None:
    return os.environ.get("OPENAI_API_KEY") or None
