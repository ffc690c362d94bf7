"""Bodies of OpenAI's interface: what a request asks for, and what answers look like."""

import secrets
import time

from nsa._arguments import shown, text, truth, whole
from nsa._runtime import InputError
from nsa._scheduler import SAMPLING, ids, list_stops


def _nothing(*values):
    """A field that may only say what happens without it."""
    def check(name, value):
        if value not in (None, *values):
            raise InputError(f"{name} is {shown(value)}, which this server does not do")
    return check


def _stream_options(name, value):
    if not isinstance(value, dict) or set(value) - {"include_usage"}:
        raise InputError(f"{name} is {shown(value)}, expected an object with include_usage")
    return truth("stream_options.include_usage", value.get("include_usage", False))


_COMMON = {
    "model": text, "stream": truth, "stream_options": _stream_options, "n": whole(1, 64), "max_tokens": whole(1),
    "temperature": SAMPLING["temperature"], "top_p": SAMPLING["top_p"], "top_k": whole(), "seed": whole(0, (1 << 64) - 1),
    "stop": lambda name, value: list_stops(value, True), "stop_token_ids": ids, "ignore_eos": truth, "user": text,
    "presence_penalty": _nothing(0), "frequency_penalty": _nothing(0), "logit_bias": _nothing({}),
}
_FIELDS = {
    "completions": {**_COMMON, "prompt": lambda name, value: value, "logprobs": whole(0, 20), "echo": _nothing(False),
                    "suffix": _nothing(""), "best_of": _nothing(1)},
    "chat/completions": {**_COMMON, "messages": lambda name, value: value, "max_completion_tokens": whole(1), "logprobs": truth,
                         "top_logprobs": whole(0, 20), "response_format": _nothing({"type": "text"}), "tools": _nothing([])},
}


def read_body(kind, body):
    """The fields that a body has, checked; null stands for one that is not there."""
    if not isinstance(body, dict):
        raise InputError("the body is no JSON object")
    for name in body:
        if name not in _FIELDS[kind]:
            raise InputError(f"the body has {shown(name)}, which is no field of this server's {kind}")
    return {name: _FIELDS[kind][name](name, value) for name, value in body.items() if value is not None}


def list_prompts(value):
    """Texts or rows of ids: of one of both, or a list of these."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise InputError(f"prompt is {shown(value)}, expected a text, ids, or a list of these")
    if all(isinstance(own, int) for own in value):
        return [ids("prompt", value)]
    return [own if isinstance(own, str) else ids(f"prompt[{number}]", own) for number, own in enumerate(value)]


def list_messages(value):
    """Messages whose content is a text."""
    if not isinstance(value, list) or not value:
        raise InputError(f"messages is {shown(value)}, expected a list of messages")
    messages = []
    for number, message in enumerate(value):
        name = f"messages[{number}]"
        if not isinstance(message, dict) or set(message) - {"role", "content", "name"}:
            raise InputError(f"{name} is {shown(message)}, expected an object with role and content")
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content]
            content = "".join(text(f"{name}.content", part) for part in parts)
        messages.append({**message, "role": text(f"{name}.role", message.get("role")), "content": text(f"{name}.content", content)})
    return messages


def scheduler_options(fields, most, usual):
    """Options of Scheduler.add. What is not said is what OpenAI says, and a seed nobody knows."""
    tokens = fields.get("max_completion_tokens", fields.get("max_tokens", usual))
    if tokens > most:
        raise InputError(f"{tokens} tokens are asked for, this server generates {most} at most")
    logprobs = fields.get("logprobs")
    if isinstance(logprobs, bool):
        logprobs = fields.get("top_logprobs", 0) if logprobs else None
    elif "top_logprobs" in fields:
        raise InputError("top_logprobs says nothing without logprobs")
    return {"tokens": tokens, "temperature": fields.get("temperature", 1.0), "top_p": fields.get("top_p", 1.0),
            "top_k": fields.get("top_k", 0), "seed": fields.get("seed", secrets.randbits(64)), "stop": fields.get("stop", ()),
            "stop_ids": fields.get("stop_token_ids", ()), "ignore_end": fields.get("ignore_eos", False), "logprobs": logprobs}


class Answer:
    """What one request of a client gets: bodies of one kind."""

    def __init__(self, kind, model, words, has_logprobs):
        self._is_chat = kind != "completions"
        self._words, self._has_logprobs = words, has_logprobs
        prefix, self._object = ("chatcmpl", "chat.completion") if self._is_chat else ("cmpl", "text_completion")
        self._head = {"id": f"{prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}

    def _word(self, token):
        word = self._words[token] if token < len(self._words) else b""
        try:
            shown = word.decode()
        except UnicodeDecodeError:
            shown = "bytes:" + "".join(f"\\x{byte:02x}" for byte in word)
        return {"token": shown, "bytes": list(word)}

    def _logprobs(self, tokens):
        """Of all tokens that were drawn, also of the one that ends a text; one that is no text alone shows its bytes."""
        if not self._has_logprobs:
            return None
        found = [[{**self._word(token), "logprob": value} for token, value in own.logprobs] for own in tokens if own.logprobs]
        if self._is_chat:
            return {"content": [{**own, "top_logprobs": top} for own, *top in found]}
        return {"tokens": [own["token"] for own, *_ in found], "token_logprobs": [own["logprob"] for own, *_ in found],
                "top_logprobs": [{one["token"]: one["logprob"] for one in top} for _, *top in found]}

    def whole(self, choices, prompt_tokens):
        """`choices` are lists of tokens."""
        bodies = []
        for index, tokens in enumerate(choices):
            joined = "".join(token.text for token in tokens)
            said = {"message": {"role": "assistant", "content": joined}} if self._is_chat else {"text": joined}
            bodies.append({"index": index, **said, "logprobs": self._logprobs(tokens), "finish_reason": tokens[-1].finish})
        return {**self._head, "object": self._object, "choices": bodies,
                "usage": usage(prompt_tokens, sum(map(len, choices)))}

    def chunk(self, index, token):
        """Of a token, or, for None, the beginning of a chat's answer."""
        said = {"text": token.text if token else ""}
        if self._is_chat:
            said = {"delta": {"content": token.text} if token else {"role": "assistant", "content": ""}}
        choice = {"index": index, **said, "logprobs": self._logprobs([token]) if token else None,
                  "finish_reason": token.finish if token else None}
        return {**self._head, "object": self._object + (".chunk" if self._is_chat else ""), "choices": [choice]}

    def last(self, prompt_tokens, tokens):
        """The numbers of tokens, after the last chunk."""
        return {**self._head, "object": self._object + (".chunk" if self._is_chat else ""), "choices": [],
                "usage": usage(prompt_tokens, tokens)}


def usage(prompt_tokens, tokens):
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}


def error_body(message, kind, code=None):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
