"""Checkpoints, their programs and their ids."""

import functools
import json
import os

import numpy

from nsa._arguments import array, takes, text
from nsa._compile import _compiler, _need_compiler, compile
from nsa._runtime import InputError, RunError, open_weights
from nsa._text import Text


@takes(config=text, name=text)
def model_text(config, name="config.yaml"):
    """The text of the model that a configuration (YAML or JSON text) describes, as nsa-model writes it."""
    return _need_compiler().model_text(config, name)


class Checkpoint:
    """A checkpoint of nsa-train, and what is right for its model."""

    def __init__(self, path):
        self._weights = weights = open_weights(path)
        #: The folder of the checkpoint.
        self.checkpoint = weights.path
        self.step = weights.step
        self.config = weights.config
        #: Ids are from 0 to one less.
        self.vocab = json.loads(weights.model_config)["model"]["vocab_size"]

    def _compile(self, **options):
        if not _compiler:
            raise RunError(f"'{self.checkpoint}' has to be compiled, and this installation of nsa has no compiler; give "
                           "artifact=, or install nsa-compiler")
        name = os.path.join(self.checkpoint, "config.yaml")
        return compile(model_text(self.config, name), name=name, **options)

    def _load_caches(self, module):
        """A module with caches, and the parameters."""
        module.program.call("init", {})
        module.program.load(self._weights)
        return module

    @functools.cached_property
    def _text(self):
        return Text(self.checkpoint, self.config)

    @property
    def _ends(self):
        """The ids that end documents: one, or none."""
        return [] if self._text.end is None else [self._text.end]

    def _check_texts(self):
        if self._text.kind == "none" or (self._text.kind == "byte" and self.vocab != 256):
            raise InputError(f"'{self.checkpoint}' has no tokenizer.json, and its {self.vocab} ids are no bytes: "
                             "give prompts as ids")

    def _check_prompt(self, name, ids, tokens=0, context=None):
        ids = array(name, ids)
        if not ids.size:
            raise InputError(f"{name} is empty: it needs at least one token")
        ids = self._check(ids, 1, 1 << 30)
        if len(ids) != 1:
            raise InputError(f"{name} has shape {ids.shape}, expected [tokens]")
        if context is not None and ids.shape[1] + tokens > context:
            raise InputError(f"{name} has {ids.shape[1]} tokens and {tokens} are to follow, more than the context "
                             f"of {context}; context={ids.shape[1] + tokens} makes it larger")
        return [int(token) for token in ids[0]]

    def _check(self, ids, least, most):
        ids = array("ids", ids)
        if not numpy.issubdtype(ids.dtype, numpy.integer):
            raise InputError(f"ids are {ids.dtype}, expected integers")
        if ids.ndim not in (1, 2):
            raise InputError(f"ids have shape {ids.shape}, expected [tokens] or [sequences, tokens]")
        ids = numpy.atleast_2d(ids)
        if not least <= ids.shape[1] <= most or len(ids) == 0:
            raise InputError(f"ids have shape {ids.shape}, expected 1 or more sequences of {least} to {most} tokens")
        if ids.min() < 0 or ids.max() >= self.vocab:
            wrong = ids[(ids < 0) | (ids >= self.vocab)][0]
            raise InputError(f"ids have the value {wrong}, expected 0 to {self.vocab - 1}")
        return ids
