"""Trained models."""

import collections.abc
import os

import numpy

from nsa._compile import _compiler, _need_compiler, compile, load
from nsa._module import Module, _path
from nsa._runtime import InputError, RunError, open_weights


class _Parameters(collections.abc.MutableMapping):
    """{name: NumPy array (float32)}: reading copies from the model, assigning copies into it."""

    def __init__(self, module, names):
        self._module = module
        self._names = names

    def __getitem__(self, name):
        self._check(name)
        return self._module.read(name)

    def __setitem__(self, name, value):
        self._check(name)
        self._module.write(name, numpy.asarray(value))

    def __delitem__(self, name):
        raise InputError(f"the parameter '{name}' belongs to the model and cannot be removed")

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __repr__(self):
        return f"<{len(self)} parameters: {', '.join(self._names[:4])}{', ...' if len(self) > 4 else ''}>"

    def _check(self, name):
        if name not in self._names:
            raise KeyError(name)


class Model:
    """A model that nsa-train trained, for losses and logits.

    `checkpoint` is a checkpoint (`step-N`), or a run directory, whose newest good one is
    taken; its hashes are verified. The program is compiled from the checkpoint's
    configuration, which needs the compiler, and is kept in the cache of nsa.compile; or
    give `artifact`, a path, bytes or a Module of the same model (nsa-train's artefact is
    one), and none is needed. `target` is "cpu" or a GPU as in nsa.compile, whose other
    keywords are taken as well: `precision` (that of the training), `micro_batch` (1) and
    `seq_len` (that of the training) tokens at most, `threads`, `device`.

    `parameters` is {name: array}, `step` the updates that made them, `config` the
    configuration as YAML. Threads may share a model.

    The memory is that of a training program: parameters, gradients and the states of the
    optimizer.

    Errors: InputError (a ValueError) for a checkpoint that is missing or damaged, one of
    another model than the artefact, and wrong ids; RunError if the machine cannot run it.
    """

    def __init__(self, checkpoint, *, artifact=None, target="cpu", micro_batch=1, precision=None, **options):
        weights = open_weights(_path(checkpoint))
        #: The folder of the checkpoint.
        self.checkpoint = weights.path
        self.step = weights.step
        self.config = weights.config
        if isinstance(artifact, Module):
            module = artifact
        elif artifact is not None:
            module = load(artifact, **options)
        else:
            if not _compiler:
                raise RunError(f"'{weights.path}' has to be compiled, and this installation of nsa has no compiler; give "
                               "artifact=, or install nsa-compiler")
            name = os.path.join(weights.path, "config.yaml")
            module = compile(model_text(weights.config, name), name=name, target=target, micro_batch=micro_batch,
                             precision=precision or weights.precision, **options)
        for entry in ("init", "eval", "forward"):
            if entry not in module.entries:
                raise InputError(f"{module.name} has no entry '{entry}'; it is no model of nsa-model")
        self.module = module
        module.program.call("init", {})
        module.program.load(weights)
        self.parameters = _Parameters(module, list(weights.tensors))
        self._tokens, self._targets = module.entries["eval"][0][:2]
        self._ids = module.entries["forward"][0][0]
        self._logits = module.entries["forward"][1][0]

    def __repr__(self):
        return f"<nsa.Model '{self.checkpoint}', step {self.step}, {len(self.parameters)} parameters, {self.module.target}>"

    @property
    def seq_len(self):
        """The most tokens of a sequence."""
        return self.module.tensors[self._tokens][1][1]

    @property
    def vocab(self):
        """Ids are from 0 to one less."""
        return self.module.tensors[self._logits][1][2]

    def loss(self, ids):
        """The mean cross-entropy, in nats, of each id given those before it.

        `ids` are integers [T] or [B, T], 2 <= T <= seq_len + 1, of NumPy or what
        numpy.asarray takes. Returns a float.
        """
        ids = self._check(ids, 2, self.seq_len + 1)
        total = 0.0
        rows, length = self.module.tensors[self._tokens][1]
        for first in range(0, len(ids), rows):
            part = ids[first:first + rows]
            tokens = numpy.zeros((rows, length), numpy.int32)
            targets = numpy.full((rows, length), -1, numpy.int32)
            tokens[:len(part), :part.shape[1] - 1] = part[:, :-1]
            targets[:len(part), :part.shape[1] - 1] = part[:, 1:]
            result = self._run("eval", {self._tokens: tokens, self._targets: targets})
            total += float(result["loss"]) * len(part)
        return total / len(ids)

    def logits(self, ids):
        """The logits of the id after each one.

        `ids` are integers [T] or [B, T], T <= seq_len, as for loss. Returns a float32
        array [T, vocab] or [B, T, vocab].
        """
        single = numpy.ndim(ids) == 1
        ids = self._check(ids, 1, self.seq_len)
        rows, length = self.module.tensors[self._ids][1]
        logits = numpy.empty((*ids.shape, self.vocab), numpy.float32)
        for first in range(0, len(ids), rows):
            part = ids[first:first + rows]
            tokens = numpy.zeros((rows, length), numpy.int32)
            tokens[:len(part), :part.shape[1]] = part
            result = self._run("forward", {self._ids: tokens})[self._logits]
            logits[first:first + rows] = result[:len(part), :part.shape[1]]
        return logits[0] if single else logits

    def _run(self, entry, inputs):
        """Runs an entry; where documents do not see each other, each row is one."""
        ids = next(iter(inputs.values()))
        if "start" in self.module.entries[entry][0]:
            inputs = {**inputs, "start": numpy.zeros_like(ids)}
        return self.module.run(entry, inputs)

    def _check(self, ids, least, most):
        ids = numpy.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
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


def model_text(config, name="config.yaml"):
    """The text of the model that a configuration (YAML or JSON text) describes, as nsa-model writes it."""
    return _need_compiler().model_text(config, name)
