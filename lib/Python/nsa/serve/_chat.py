"""Prompts of a chat, by the template of a Hugging Face folder."""

import datetime
import json
import os

from nsa._files import open_file
from nsa._optional import require
from nsa._runtime import InputError


def _read(folder, name):
    """The text of a file that need not be there, or None."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None
    try:
        with open_file(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {error}") from error


def _read_json(folder, name):
    try:
        found = json.loads(_read(folder, name) or "{}")
    except ValueError as error:
        raise InputError(f"'{os.path.join(folder, name)}' is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"'{os.path.join(folder, name)}' is no JSON object")
    return found


def _template(folder, config):
    """chat_template.jinja, or that of tokenizer_config.json, of several the one called default; None without one."""
    template = _read(folder, "chat_template.jinja") or config.get("chat_template")
    if isinstance(template, list):
        template = {own.get("name"): own.get("template") for own in template}.get("default")
    return template


class Chat:
    """Makes ids of messages. `stop_ids` end an answer. `folder` has tokenizer.json, and tokenizer_config.json or
    chat_template.jinja."""

    def __init__(self, folder):
        config = _read_json(folder, "tokenizer_config.json")
        template = _template(folder, config)
        if not template:
            raise InputError(f"'{folder}' has no chat template: neither chat_template.jinja nor one in tokenizer_config.json")
        source = _read(folder, "tokenizer.json")
        if source is None:
            raise InputError(f"'{folder}' has no tokenizer.json, whose tokens a chat template names")
        self.source = source.encode()
        library = require("tokenizers", "a chat template")
        try:
            self._encoder = library.Tokenizer.from_str(source)
        except Exception as error:
            raise InputError(f"'{folder}/tokenizer.json' is no tokenizer.json of the tokenizers library: {error}") from error
        self._encoder.no_truncation()
        self._encoder.no_padding()
        self._special = [token["content"] for token in json.loads(source).get("added_tokens", []) if token["special"]]
        names = {key: value.get("content") if isinstance(value, dict) else value
                 for key, value in config.items() if key.endswith("_token") and isinstance(value, (dict, str))}
        ends = _read_json(folder, "generation_config.json").get("eos_token_id", [])
        own = self._encoder.token_to_id(names.get("eos_token") or "")
        self.stop_ids = sorted({*(ends if isinstance(ends, list) else [ends]), *([] if own is None else [own])})
        self._render = self._compile(template, names)

    @staticmethod
    def _compile(template, names):
        jinja2, sandbox = require("jinja2", "a chat template"), require("jinja2.sandbox", "a chat template")
        environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                            extensions=["jinja2.ext.loopcontrols"])

        def refuse(message):
            raise jinja2.TemplateError(message)
        environment.globals.update(names, raise_exception=refuse,
                                   strftime_now=lambda form: datetime.datetime.now().strftime(form))
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        try:
            return environment.from_string(template).render
        except jinja2.TemplateError as error:
            raise InputError(f"the chat template has an error: {error}") from error

    def encode(self, messages):
        """The ids of messages, {"role": ..., "content": text}, up to where the answer begins."""
        for number, message in enumerate(messages):
            for word in self._special:
                if word in message["content"] or word in message["role"]:
                    raise InputError(f"messages[{number}] contains {word}, which only the chat template may write")
        try:
            text = self._render(messages=messages, add_generation_prompt=True)
        except Exception as error:  # A template is a program.
            raise InputError(f"the chat template refuses these messages: {error}") from error
        return self._encoder.encode(text, add_special_tokens=False).ids
