"""A writer is a model behind a URL or one of this process; a seed makes it repeat itself."""

import json
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import tiny
import torch

import longseal
from longseal.errors import LongsealError
from longseal.tasks.own.writer import LocalWriter, open_writer

KEY = "sk-a-key-that-nobody-may-see"


@contextmanager
def server(answer, models=("first", "second")):
    """A server that speaks chat completions: `answer(request body)` gives status and reply."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self, status, body):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("x-should-retry", "false")  # or the library tries again for seconds
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            asked.append((self.path, self.headers, None))
            listed = [{"id": m, "object": "model", "created": 0, "owned_by": "x"} for m in models]
            self.reply(200, {"object": "list", "data": listed})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers, body))
            self.reply(*answer(body))

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", asked
    finally:
        running.shutdown()
        running.server_close()


def chat(text):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_a_server_is_asked_for_a_chat_completion(path):
    with server(lambda body: (200, chat(f"  Said {body['seed']}.\n"))) as (url, asked):
        assert open_writer(url + path).write("Write a word.", 7) == "Said 7."
    (listing, _, _), (place, _, body) = asked
    assert (listing, place) == ("/v1/models", "/v1/chat/completions")
    assert body["messages"] == [{"role": "user", "content": "Write a word."}]
    assert (body["model"], body["seed"]) == ("first", 7)


def test_the_model_may_be_named_and_another_path_is_kept():
    with server(lambda _: (200, chat("x"))) as (url, asked):
        open_writer(f"{url}/openai/v2#org/large").write("Write.", 1)
    ((place, _, body),) = asked
    assert place == "/openai/v2/chat/completions"
    assert body["model"] == "org/large"


@pytest.mark.parametrize(("key", "sent"), [(KEY, f"Bearer {KEY}"), (None, "Bearer none")])
def test_the_key_comes_from_the_environment(monkeypatch, key, sent):
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with server(lambda _: (200, chat("x"))) as (url, asked):
        open_writer(url).write("Write.", 1)
    assert {headers["Authorization"] for _, headers, _ in asked} == {sent}


def test_thoughts_are_no_part_of_the_reply():
    with server(lambda _: (200, chat("<think>\nA word?\n</think>\n\nRiver"))) as (url, _):
        assert open_writer(url).write("Write.", 1) == "River"


def test_a_server_that_knows_no_seed_is_asked_without():
    def answer(body):
        if "seed" in body:
            return 422, {"error": {"message": "extra fields not permitted: seed"}}
        return 200, chat("River")

    with server(answer) as (url, asked):
        assert open_writer(url).write("Write.", 1) == "River"
    assert ["seed" in body for _, _, body in asked[1:]] == [True, False]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_a_refusal_is_one_line_without_the_key(monkeypatch, status):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    refusal = {"error": {"message": f"Wrong:\nincorrect key {KEY}\ngiven"}}
    with server(lambda _: (status, refusal)) as (url, _):
        writer = open_writer(url.replace("//", "//user:word123@"))
        with pytest.raises(LongsealError, match=rf"{url}/v1 failed.*Wrong") as refused:
            writer.write("Write.", 1)
    chain = [refused.value, refused.value.__cause__]
    assert len(str(refused.value).splitlines()) == 1
    assert not any(KEY in str(error) or "word123" in str(error) for error in chain)


def test_what_is_no_chat_server_is_refused():
    with (
        server(lambda _: (200, {"hello": "there"})) as (url, _),
        pytest.raises(LongsealError, match="did not answer as chat completions do"),
    ):
        open_writer(url).write("Write.", 1)


def test_a_server_without_models_is_refused():
    with (
        server(lambda _: (200, chat("x")), models=()) as (url, _),
        pytest.raises(LongsealError, match=r"lists no model: name one as .*#MODEL"),
    ):
        open_writer(url)


def test_a_server_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    with pytest.raises(LongsealError, match=r"the writer at http://127.0.0.1:9/v1 failed"):
        open_writer("http://127.0.0.1:9")


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(LongsealError, match=r"pip install 'longseal\[writer\]'"):
        open_writer("http://127.0.0.1:9")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longseal.tasks.own.writer._NEW_TOKENS", 12)  # babble need not be long
        return open_writer(str(tiny.save(tmp_path_factory.mktemp("writer") / "model")))


def test_a_local_model_repeats_itself_by_its_seed(local):
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    first, again, other = (local.write("Write a word.", seed) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_local_model_reads_its_chat_template_and_stops_at_its_end(checkpoint):
    model = longseal.load(checkpoint("llama"), device="cpu")
    seen = []

    def generate(input_ids, attention_mask):
        seen.append(model.tokenizer.decode(input_ids[0]))
        said = model.tokenizer.encode(" River<|end|>", add_special_tokens=False)
        return torch.cat([input_ids, torch.tensor([said])], dim=1)

    model.network.generate = generate
    assert LocalWriter(model).write("Write a word.", 1) == "River"
    assert seen == ["<|bos|><|turn|>user\nWrite a word.<|end|>\n<|turn|>assistant\n"]
    settings = model.network.generation_config
    ends = model.tokenizer.convert_tokens_to_ids(["<|eos|>", "<|end|>"])
    assert settings.do_sample
    assert set(settings.eos_token_id) >= set(ends)
