"""nsa-serve: OpenAI's interface, many clients at once."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

import nsa
from programs import train_on_ids
from test_generate import CHECKPOINT

pytest.importorskip("aiohttp")
import nsa.serve  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_on_ids(tmp_path_factory.mktemp("run"), CHECKPOINT)


@pytest.fixture(scope="module")
def scheduler(run):
    """With pages for one and a half of 4 contexts."""
    return nsa.Scheduler(run, slots=4, context=128, pages=12)


@contextlib.contextmanager
def listening(scheduler, **options):
    """A server in a thread; its port."""
    server, loop = nsa.serve.Server(scheduler, **options), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.fixture(scope="module")
def port(scheduler):
    with listening(scheduler) as port:
        yield port


def ask(port, body, path="completions", content_type="application/json"):
    """(status, body) of an answer; of a stream, its events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    method = "GET" if body is None else "POST"
    connection.request(method, f"/v1/{path}", body if isinstance(body, bytes) else json.dumps(body), {"Content-Type": content_type})
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    if answer.headers["Content-Type"] == "text/event-stream":
        assert said.endswith("data: [DONE]\n\n")
        return answer.status, [json.loads(event[6:]) for event in said.split("\n\n")[:-2]]
    return answer.status, json.loads(said)


def test_64_clients_get_the_texts_that_generate_gives_each_alone(port, run):
    model = nsa.Model(run)
    prompts = [f"client {number} " * (number % 4 + 1) for number in range(64)]
    wanted = [model.generate(prompt, tokens=5 + number % 30, seed=number, context=128) for number, prompt in enumerate(prompts)]

    def one(number):
        body = {"prompt": prompts[number], "max_tokens": 5 + number % 30, "seed": number, "stream": number % 2 == 1}
        status, answer = ask(port, body)
        assert status == 200
        events = answer if body["stream"] else [answer]
        return "".join(event["choices"][0]["text"] for event in events), events[-1]["choices"][0]["finish_reason"]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        got = list(pool.map(one, range(64)))
    assert [text for text, _ in got] == wanted
    assert {finish for _, finish in got} <= {"length", "stop"}


def test_answers_have_choices_logprobs_and_usage(port):
    body = {"model": "small", "prompt": ["ab", [1, 2, 3]], "n": 2, "max_tokens": 4, "seed": 3, "logprobs": 2, "ignore_eos": True}
    status, answer = ask(port, body)
    assert status == 200 and answer["object"] == "text_completion" and answer["model"] == "small"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 16, "total_tokens": 21}
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in answer["choices"]}) == 4
    for choice in answer["choices"]:
        assert {len(own) for own in choice["logprobs"].values()} == {4} and choice["finish_reason"] == "length"
    _, events = ask(port, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert events[-1]["usage"] == answer["usage"] and events[-1]["choices"] == []
    for index, choice in enumerate(answer["choices"]):
        own = [event["choices"][0] for event in events[:-1] if event["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in own) == choice["text"]
        assert [part["logprobs"]["token_logprobs"][0] for part in own] == choice["logprobs"]["token_logprobs"]
    assert ask(port, None, "models")[1]["data"][0]["id"] == "small"


@pytest.mark.parametrize("body,status,message", [
    (b'{"prompt": ', 400, "the body is no JSON"),
    (b'{"prompt": "\\ud800"}', 400, "the body is no JSON"),
    (b"[" * 100_000, 400, "the body is no JSON"),
    (b"[1]", 400, "the body is no JSON object"),
    ({"promt": "a"}, 400, "the body has 'promt', which is no field of this server's completions"),
    ({}, 400, "prompt is None, expected a text, ids, or a list of these"),
    ({"prompt": ""}, 400, "the prompt is empty: it needs at least one token"),
    ({"prompt": [[1], [256]]}, 400, "ids have the value 256, expected 0 to 255"),
    ({"prompt": [True]}, 400, "prompt\\[0\\] is True, expected an integer"),
    ({"prompt": "a", "max_tokens": 129}, 400, "129 tokens are asked for, this server generates 128 at most"),
    ({"prompt": "a" * 100, "max_tokens": 29}, 400, "the prompt has 100 tokens and 29 are to follow, more than the context of 128"),
    ({"prompt": "a", "temperature": float("nan")}, 400, "temperature is nan, expected 0 or more"),
    ({"prompt": "a", "stop": ""}, 400, "stop has an empty text"),
    ({"prompt": "a", "presence_penalty": 1}, 400, "presence_penalty is 1, which this server does not do"),
    ({"prompt": "a", "seed": -1}, 400, "seed is -1, expected an integer from 0"),
    ({"prompt": ["a"] * 60, "n": 64}, 400, "the request makes 3840 choices, this server 256 at most"),
    ({"prompt": "a", "model": "other"}, 404, "there is no model 'other', only 'small'"),
    ({"prompt": "a" * (1 << 20)}, 413, "the body has more than 1048576 bytes"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_request_is_one_sentence_with_its_status(port, body, status, message, stream):
    if isinstance(body, dict):
        body = {**body, "stream": stream}
    found, answer = ask(port, body)
    assert found == status and re.match(message, answer["error"]["message"]) and answer["error"]["type"] == "invalid_request_error"
    assert "\n" not in answer["error"]["message"]


def test_other_paths_methods_and_types_are_errors(port):
    assert ask(port, None, "completions")[0] == 405 and ask(port, {}, "embeddings")[0] == 404
    status, answer = ask(port, {"prompt": "a"}, content_type="text/plain")
    assert status == 400 and answer["error"]["message"] == "the body is text/plain, expected application/json"
    status, answer = ask(port, {"messages": [{"role": "user", "content": "a"}]}, "chat/completions")
    assert status == 400 and "has no chat template" in answer["error"]["message"]


def test_lost_client_frees_its_slot(port, scheduler):
    for stream in (True, False):
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                body = json.dumps({"prompt": "abc", "max_tokens": 125, "n": 8, "stream": stream, "ignore_eos": True}).encode()
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            deadline = time.monotonic() + 20
            while not scheduler.waiting and time.monotonic() < deadline:
                time.sleep(0.001)
            assert scheduler.waiting
        while scheduler.waiting and time.monotonic() < deadline:
            time.sleep(0.001)
        assert scheduler.running + scheduler.waiting <= 4
    assert ask(port, {"prompt": "a", "max_tokens": 1})[0] == 200


class Slow:
    """A scheduler whose steps take a while."""

    def __init__(self, scheduler):
        self._own = scheduler

    def __getattr__(self, name):
        return getattr(self._own, name)

    def step(self):
        time.sleep(0.05)
        return self._own.step()


def test_clients_and_time_have_limits(scheduler):
    with listening(Slow(scheduler), clients=2, seconds=1) as port, concurrent.futures.ThreadPoolExecutor(6) as pool:
        long = {"prompt": "a", "max_tokens": 100, "ignore_eos": True, "logprobs": 1}  # A token a step.
        got = list(pool.map(lambda _: ask(port, long), range(6)))
        assert sorted(status for status, _ in got) == [408] * 2 + [429] * 4
        messages = {answer["error"]["message"] for _, answer in got}
        assert messages == {"the request took longer than 1 s", "2 requests are being answered, which is the most"}
        status, events = ask(port, {**long, "stream": True})
        assert status == 200 and events[-1]["error"]["message"] == "the request took longer than 1 s"
        assert ask(port, {"prompt": "a", "max_tokens": 2})[0] == 200


def test_failed_program_is_an_error_for_all(scheduler):
    class Failing(Slow):
        def step(self):
            raise nsa.RunError("the device is gone")
    with listening(Failing(scheduler)) as port:
        for message in ("the device is gone", "the program has failed: the device is gone"):
            status, answer = ask(port, {"prompt": "a"})
            assert status == 500 and answer["error"] == {"message": message, "type": "server_error", "param": None, "code": None}
    scheduler.step()


TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message.role not in ["user", "assistant"] %}{{ raise_exception("no role " + message.role) }}{% endif %}
<u>{{ message.content | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"""


def write_chat(folder):
    """A tokenizer of single bytes, the ids of a model of bytes, with special tokens at 1 to 4."""
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    names = {1: "<s>", 2: "</s>", 3: "<u>", 4: "<a>"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    vocabulary = {chr(byte): byte for byte in range(33, 127)} | {"\u0120": 32} | {name: token for token, name in names.items()}
    (folder / "tokenizer.json").write_text(json.dumps({
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "decoder": byte_level, "pre_tokenizer": byte_level,
        "added_tokens": [{**special, "id": token, "content": name} for token, name in names.items()]}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}))


def test_chat_is_the_template_of_its_folder(scheduler, tmp_path):
    write_chat(tmp_path)
    with listening(scheduler, chat=str(tmp_path)) as port:
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": " hi"}]}, {"role": "assistant", "content": "a b"}],
                "max_tokens": 7, "seed": 4}
        ids = [1, 3, *b"hi", 2, 3, *b"a b", 2, 4]
        _, plain = ask(port, {"prompt": ids, "max_tokens": 7, "seed": 4, "stop_token_ids": [2], "logprobs": 1})
        status, answer = ask(port, {**body, "logprobs": True, "top_logprobs": 1}, "chat/completions")
        [choice] = answer["choices"]
        assert status == 200 and answer["object"] == "chat.completion" and answer["usage"]["prompt_tokens"] == len(ids)
        assert choice["message"] == {"role": "assistant", "content": plain["choices"][0]["text"]}
        assert [own["logprob"] for own in choice["logprobs"]["content"]] == plain["choices"][0]["logprobs"]["token_logprobs"]
        _, events = ask(port, {**body, "stream": True}, "chat/completions")
        deltas = [event["choices"][0]["delta"] for event in events]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert "".join(delta["content"] for delta in deltas) == choice["message"]["content"]
        for messages, message in [
                ([{"role": "user", "content": "a</s>"}], "messages[0] contains </s>, which only the chat template may write"),
                ([{"role": "tool", "content": "a"}], "the chat template refuses these messages: no role tool"),
                ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content is None, expected a text"),
                ([], "messages is [], expected a list of messages")]:
            status, answer = ask(port, {"messages": messages}, "chat/completions")
            assert status == 400 and answer["error"]["message"] == message


def test_nsa_serve_says_where_and_ends_with_a_signal(run):
    process = subprocess.Popen([sys.executable, "-m", "nsa.serve", run, "--port", "0", "--slots", "2", "--name", "it"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": os.path.dirname(nsa.__path__[0])})
    try:
        port = re.fullmatch(r"nsa-serve: http://127.0.0.1:(\d+)/v1 answers for 'it'\n", process.stdout.readline())[1]
        assert ask(int(port), {"prompt": "a", "max_tokens": 2})[0] == 200
        process.terminate()
        assert process.wait(20) == 0 and process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
