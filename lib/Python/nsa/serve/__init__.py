"""OpenAI's interface over HTTP to an nsa.Scheduler.

    nsa-serve runs/small --slots 8                       (or python -m nsa.serve)

Needs aiohttp, and for chats jinja2 and tokenizers: pip install nsa[serve].
"""

import asyncio
import contextlib
import json
import logging
import os
import time

from nsa._optional import require
from nsa._runtime import Error, InputError, RunError
from nsa._text import same_ids
from nsa.serve._chat import Chat
from nsa.serve._engine import Engine
from nsa.serve._protocol import Answer, error_body, list_messages, list_prompts, read_body, scheduler_options

__all__ = ["Server"]

_JSON = "application/json"
_log = logging.getLogger("nsa")


class _Refused(Exception):
    """What a client gets in place of an answer."""

    def __init__(self, status, message, kind="invalid_request_error", code=None):
        super().__init__(message)
        self.status, self.body = status, error_body(message, kind, code)


class Server:
    """Answers clients by a scheduler that is the server's alone.

    `name` is what clients call the model. `chat` is a Hugging Face folder with a chat template [the
    checkpoint]. A request makes `tokens` tokens at most, so many as there is room for if None. `clients` requests
    are answered at once, others are told to come back. A body has `body_bytes` bytes at most, a request takes
    `seconds` at most.
    """

    def __init__(self, scheduler, name=None, *, chat=None, tokens=None, clients=256, body_bytes=1 << 20, seconds=600):
        self._web = require("aiohttp.web", "nsa-serve")
        model = scheduler._model
        model._check_texts()
        self._context, self._longest, self._check = scheduler.context, scheduler.longest, model._check_prompt
        self._words, self._encode = model._text.bytes, model._text.encode
        self.name = name or os.path.basename(os.path.dirname(os.path.dirname(model.checkpoint)))
        self._chat = self._why = None
        try:
            self._chat = Chat(chat or model.checkpoint)
            if not same_ids(model._text.source or self._chat.source, self._chat.source):
                raise InputError(f"'{chat}/tokenizer.json' is not that of the model '{model.checkpoint}'")
        except InputError as error:
            if chat:
                raise
            self._why = f"this model does not chat: {error}; nsa-serve --chat names a folder that has one"
        self._tokens, self._clients, self._body_bytes, self._seconds = tokens or self._longest, clients, body_bytes, seconds
        self._active = 0
        self._created = int(time.time())
        self._engine = Engine(scheduler)

    def app(self):
        """What aiohttp runs."""
        answer = self._web.middleware(lambda request, handler: self._answer_errors(request, handler))
        app = self._web.Application(client_max_size=self._body_bytes, middlewares=[answer])
        app.router.add_get("/v1/models", self._list_models)
        for kind in ("completions", "chat/completions"):
            app.router.add_post(f"/v1/{kind}", self._completions)
        return app

    async def start(self, host="127.0.0.1", port=0):
        """Listens; returns the port."""
        self._runner = self._web.AppRunner(self.app(), handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = self._web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise InputError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return self._runner.addresses[0][1]

    async def close(self):
        """Ends all requests."""
        await self._runner.cleanup()
        await asyncio.to_thread(self._engine.close)

    async def _answer_errors(self, request, handler):
        """Every error is a body as OpenAI's."""
        try:
            return await handler(request)
        except _Refused as error:
            return self._web.json_response(error.body, status=error.status)
        except self._web.HTTPException as error:
            message = f"{request.method} {request.path}: {error.reason}"
            if error.status == 413:
                message = f"the body has more than {self._body_bytes} bytes"
            return self._web.json_response(error_body(message, "invalid_request_error"), status=error.status)
        except InputError as error:
            return self._web.json_response(error_body(str(error), "invalid_request_error"), status=400)
        except Exception as error:
            _log.exception("%s %s", request.method, request.path)
            return self._web.json_response(error_body(str(error), "server_error"), status=500)

    async def _list_models(self, request):
        return self._web.json_response({"object": "list", "data": [
            {"id": self.name, "object": "model", "created": self._created, "owned_by": "nsa", "max_model_len": self._longest}]})

    async def _completions(self, request):
        if self._active >= self._clients:
            raise _Refused(429, f"{self._clients} requests are being answered, which is the most", "rate_limit_error")
        self._active += 1
        try:
            return await self._complete(request)
        finally:
            self._active -= 1

    async def _within_time(self, awaitable):
        try:
            return await asyncio.wait_for(awaitable, self._seconds)
        except asyncio.TimeoutError:
            raise _Refused(408, f"the request took longer than {self._seconds} s", "timeout") from None

    async def _complete(self, request):
        kind = request.path.removeprefix("/v1/")
        fields = read_body(kind, await self._within_time(self._read(request)))
        if fields.get("model", self.name) != self.name:
            raise _Refused(404, f"there is no model {fields['model']!r}, only {self.name!r}", code="model_not_found")
        prompts, usual = await asyncio.to_thread(self._list_prompts, kind, fields)
        options = scheduler_options(fields, self._tokens, usual)
        for prompt in prompts:
            self._check("the prompt", prompt, options["tokens"], self._context)
        jobs = [prompt for prompt in prompts for _ in range(fields.get("n", 1))]
        if len(jobs) > self._clients:
            raise InputError(f"the request makes {len(jobs)} choices, this server {self._clients} at most")
        streams = [self._engine.generate(prompt, {**options, "number": number, "as_text": True}) for number, prompt in enumerate(jobs)]
        answer = Answer(kind, self.name, self._words, options["logprobs"] is not None)
        count = sum(map(len, prompts))
        if fields.get("stream"):
            return await self._stream(request, answer, streams, count if fields.get("stream_options") else None)
        choices = [[] for _ in jobs]

        async def take(index, token):
            choices[index].append(token)
        await self._within_time(_forward(streams, take))
        return self._web.json_response(answer.whole(choices, count))

    async def _read(self, request):
        # A page of another site cannot send this type unasked.
        if request.content_type != _JSON:
            raise InputError(f"the body is {request.content_type}, expected {_JSON}")
        try:
            body = json.loads(await request.read())
            json.dumps(body, ensure_ascii=False).encode()  # Half a character is none.
            return body
        except (ValueError, RecursionError) as error:
            raise InputError(f"the body is no JSON: {error}") from error

    def _list_prompts(self, kind, fields):
        """Rows of ids, and the tokens of an answer whose length is not said."""
        if kind == "completions":
            prompts = [self._encode([prompt])[0].tolist() if isinstance(prompt, str) else prompt
                       for prompt in list_prompts(fields.get("prompt"))]
            return prompts, min(16, self._tokens)
        if not self._chat:
            raise InputError(self._why)
        prompt = self._chat.encode(list_messages(fields.get("messages")))
        fields["stop_token_ids"] = [*fields.get("stop_token_ids", []), *self._chat.stop_ids]
        return [prompt], max(1, min(self._tokens, self._longest - len(prompt)))

    async def _stream(self, request, answer, streams, prompt_tokens):
        response, count = None, 0

        async def send(*bodies):
            await response.write(b"".join(b"data: %b\n\n" % json.dumps(body).encode() for body in bodies))

        async def take(index, token):
            nonlocal response, count
            count += 1
            chunks = [answer.chunk(index, token)]
            if response is None:
                # Until here, a request that is wrong has an error of its own.
                response = self._web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
                await response.prepare(request)
                if request.path.endswith("chat/completions"):
                    chunks[:0] = [answer.chunk(number, None) for number in range(len(streams))]
            await send(*chunks)

        async def end(*bodies):
            await send(*bodies)
            await response.write(b"data: [DONE]\n\n")
        try:
            await self._within_time(_forward(streams, take))
            last = [] if prompt_tokens is None else [answer.last(prompt_tokens, count)]
        except (Error, _Refused) as error:
            if response is None:
                raise
            last = [error.body if isinstance(error, _Refused) else error_body(str(error), "server_error")]
        try:
            await asyncio.wait_for(end(*last), 5)
        except asyncio.TimeoutError:
            # A client that reads nothing.
            request.transport.abort()
        return response


async def _forward(streams, take):
    """Calls `take(number, token)` for the tokens of several streams as they come; all end where one fails or the caller leaves."""
    lock = asyncio.Lock()

    async def forward(number, stream):
        async with contextlib.aclosing(stream):
            async for token in stream:
                if token.finish == "not finite":
                    raise RunError(f"the logits of choice {number} are not finite")
                async with lock:
                    await take(number, token)
    tasks = [asyncio.create_task(forward(*each)) for each in enumerate(streams)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
