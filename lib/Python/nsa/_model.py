"""Trained models."""

import collections.abc
import threading

import numpy

from nsa._arguments import array, optional, path, shown, takes, text, truth, whole
from nsa._checkpoint import Checkpoint
from nsa._compile import load
from nsa._module import Module
from nsa._runtime import InputError, RunError
from nsa._scheduler import SAMPLING, Sequences, list_stops, part_of


class _Parameters(collections.abc.MutableMapping):
    """{name: NumPy array (float32)}: reading copies from the model, assigning copies into it."""

    def __init__(self, module, names):
        self._module = module
        self._names = names
        #: Names that were assigned to.
        self.changed = set()

    def __getitem__(self, name):
        self._check(name)
        return self._module.read(name)

    def __setitem__(self, name, value):
        self._check(name)
        self._module.write(name, value)
        self.changed.add(name)

    def __delitem__(self, name):
        raise InputError(f"the parameter '{name}' belongs to the model and cannot be removed")

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __repr__(self):
        return f"<{len(self)} parameters: {', '.join(self._names[:4])}{', ...' if len(self) > 4 else ''}>"

    def _check(self, name):
        if not isinstance(name, str) or name not in self._names:
            raise KeyError(name)


def _list_prompts(prompts):
    """Prompts, and whether it was one alone."""
    if isinstance(prompts, str):
        return [prompts], True
    try:
        given = list(prompts)
    except (TypeError, RuntimeError, NotImplementedError):
        raise InputError(f"prompts is {shown(prompts)}, expected a text, ids, or a list of these") from None
    single = bool(given) and all(not isinstance(prompt, str) and array("prompts", prompt).ndim == 0 for prompt in given)
    return ([array("prompts", prompts)], True) if single else (given, False)


class Model(Checkpoint):
    """A model that nsa-train trained, for losses and logits.

    `checkpoint` is a checkpoint (`step-N`), or a run directory, whose newest good one is
    taken; its hashes are verified. The program is compiled from the checkpoint's
    configuration, which needs the compiler, and is kept in the cache of nsa.compile; or
    give `artifact`, a path, bytes or a Module of the same model, and none is needed: what
    nsa-train compiled has losses, and generates from one prompt as long as its samples. `target` is "cpu" (the default) or a GPU as in nsa.compile,
    whose other keywords are taken as well: `precision` (that of the training),
    `micro_batch` (1) and `seq_len` (that of the training) tokens at most, which an
    artefact has already; `threads`, `device`.

    `parameters` is {name: array}, `step` the updates that made them, `config` the
    configuration as YAML. Threads may share a model.

    The memory is that of a training program: parameters, gradients and the states of the
    optimizer.

    Errors: InputError (a ValueError) for a checkpoint that is missing or damaged, one of
    another model than the artefact, and wrong ids; RunError if the machine cannot run it.
    """

    @takes(checkpoint=path, target=optional(text), micro_batch=optional(whole(1)), precision=optional(text))
    def __init__(self, checkpoint, *, artifact=None, target=None, micro_batch=None, precision=None, **options):
        compiled = {"target": target, "micro_batch": micro_batch, "precision": precision, "seq_len": options.get("seq_len")}
        given = [name for name, value in compiled.items() if value is not None]
        if artifact is not None and given:
            raise InputError(f"artifact is compiled, and {', '.join(given)} cannot be chosen for it: leave out one or the other")
        super().__init__(checkpoint)
        weights = self._weights
        self._generators = {}
        # Of the caches that `generate` has.
        self._lock = threading.Lock()
        if isinstance(artifact, Module):
            module = artifact
        elif artifact is not None:
            module = load(artifact, **options)
        else:
            module = self._compile(target=target or "cpu", micro_batch=micro_batch or 1, precision=precision or weights.precision,
                                   **options)
        for entry in ("init", "eval"):
            if entry not in module.entries:
                raise InputError(f"{module.name} has no entry '{entry}'; it is no model of nsa-model")
        self.module = module
        self._options = {"target": module.target, "precision": precision or weights.precision, **options}
        module.program.call("init", {})
        module.program.load(weights)
        self.parameters = _Parameters(module, list(weights.tensors))
        self._tokens, self._targets = module.entries["eval"][0][:2]

    def __repr__(self):
        return f"<nsa.Model '{self.checkpoint}', step {self.step}, {len(self.parameters)} parameters, {self.module.target}>"

    @property
    def seq_len(self):
        """The most tokens of a sequence."""
        return self.module.tensors[self._tokens][1][1]

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
        if "forward" not in self.module.entries:
            raise InputError(f"{self.module.name} has no entry 'forward', by which there are logits; nsa-compile makes it without "
                             "--sample-context and --no-forward")
        single = array("ids", ids).ndim == 1
        ids = self._check(ids, 1, self.seq_len)
        (given, *_), (found, *_) = self.module.entries["forward"]
        rows, length = self.module.tensors[given][1]
        logits = numpy.empty((*ids.shape, self.vocab), numpy.float32)
        for first in range(0, len(ids), rows):
            part = ids[first:first + rows]
            tokens = numpy.zeros((rows, length), numpy.int32)
            tokens[:len(part), :part.shape[1]] = part
            result = self._run("forward", {given: tokens})[found]
            logits[first:first + rows] = result[:len(part), :part.shape[1]]
        return logits[0] if single else logits

    def _run(self, entry, inputs):
        """Runs an entry; where documents do not see each other, each row is one."""
        ids = next(iter(inputs.values()))
        if "start" in self.module.entries[entry][0]:
            inputs = {**inputs, "start": numpy.zeros_like(ids)}
        return self.module.run(entry, inputs)

    @takes(**SAMPLING, context=optional(whole(1)), return_logprobs=truth, return_selection=truth, consistent=truth)
    def generate(self, prompts, tokens=256, *, temperature=1.0, top_k=0, top_p=1.0, seed=0, stop=(), ignore_end=False,
                 context=None, return_logprobs=False, return_selection=False, consistent=False):
        """What follows prompts, token by token.

        `prompts` is a text, ids [T], or a list of texts or of ids, which are continued as one
        batch. A text becomes ids by the tokenizer.json of the checkpoint, which needs the
        package tokenizers, or is its bytes in a model of 256 ids. At most `tokens` ids are
        drawn for each prompt: of the `top_k` most likely ones (0: all), the fewest that have
        the part `top_p` of the probability, with logits divided by `temperature`; 0 takes the
        most likely one. `seed` decides the draws. A sequence ends before the id that ends
        documents, unless `ignore_end`, a text also before the first of the strings `stop`, one
        string or several.

        Returns a text or a list of ids, or a list of these, without the prompts; with
        `return_logprobs` or `return_selection` a tuple of that and, for each prompt, of
        what was asked for, in this order: the log-probability of each id that was drawn, as
        logits alone say it, and the blocks that layers selected for each id of the prompt and
        its continuation but the last one drawn, int32 [sparse layers, Hkv, ids, count]. With
        `consistent`, logits and blocks of an id are the bits that they are where it is in a
        prompt, of any batch, which takes longer (docs/consistency.md).

        The first call compiles the model once more, for sequences of `context` ids (4 times
        seq_len) and as many prompts, with caches (docs/generate.md), and loads it; not where an
        `artifact` of nsa-train has them, for one prompt that fits the context of its samples.

        Errors: InputError for an empty prompt, one that does not fit the context with its
        continuation, ids that the model does not have, and a text where ids are none.
        """
        given, single = _list_prompts(prompts)
        are_texts = [isinstance(prompt, str) for prompt in given]
        stop = list_stops(stop, all(are_texts))
        if any(are_texts):
            self._check_texts()
        ids = [self._text.encode([prompt])[0] if isinstance(prompt, str) else prompt for prompt in given]
        own = int(self.module._artifact.options.get("sample-context", 0))
        if context is None and len(ids) == 1 and array("prompt 1", ids[0]).size + tokens <= own:
            context = own
        context = context or 4 * self.seq_len
        ids = [self._check_prompt(f"prompt {number}", own, tokens, context) for number, own in enumerate(ids, 1)]
        if not ids:
            raise InputError("prompts is an empty list, expected at least one")
        ends = [] if ignore_end else self._ends
        module = self.module if context == own and len(ids) == 1 and not return_selection and not consistent else None
        with self._lock:
            sequences = self._sequences(ids, context, return_selection, module, consistent)
            tokens, selections = sequences.run(
                [sequences.add(own, tokens, (temperature, top_k, top_p), seed, is_text, stop, ends, row,
                               logprobs=0 if return_logprobs else -1)
                 for row, (own, is_text) in enumerate(zip(ids, are_texts))], return_selection)
        results = []
        for own, is_text in zip(tokens, are_texts):
            drawn = [token.id for token in own]
            if drawn[-1] in ends:
                drawn.pop()
            results.append("".join(token.text for token in own) if is_text else drawn)
        found = [results]
        if return_logprobs:
            found.append([[token.logprobs[0][1] for token in own] for own in tokens])
        if return_selection:
            found.append(selections)
        if single:
            found = [every[0] for every in found]
        return tuple(found) if len(found) > 1 else found[0]

    @takes(context=optional(whole(1)), consistent=truth)
    def logprobs(self, prompts, continuations, *, context=None, consistent=False):
        """The log-probabilities that `generate` had for the ids of continuations, bit for bit where
        batch and context are the same; with `consistent` for both, wherever a continuation begins.

        `prompts` are ids [T] or a list of ids, `continuations` what follows them, ids alike.
        Returns a list of numbers, or a list of these.
        """
        given, single = _list_prompts(prompts)
        following = [continuations] if single else list(continuations)
        if len(following) != len(given):
            raise InputError(f"there are {len(following)} continuations, expected {len(given)}, one for each prompt")
        context = context or 4 * self.seq_len
        following = [self._check_prompt(f"prompt {number}", own, 0, context) for number, own in enumerate(following, 1)]
        ids = [self._check_prompt(f"prompt {number}", own, len(after), context)
               for number, (own, after) in enumerate(zip(given, following), 1)]
        with self._lock:
            sequences = self._sequences(ids, context, consistent=consistent)
            tokens, _ = sequences.run([sequences.add(own, len(after), (0, 0, 1), 0, False, given=after, logprobs=0)
                                       for own, after in zip(ids, following)])
        found = [[token.logprobs[0][1] for token in own] for own in tokens]
        return found[0] if single else found

    def _sequences(self, ids, context, selection=False, module=None, consistent=False):
        """Sequences whose prompts are prefilled, with the present parameters, by a program that `generate` keeps, or this module."""
        if module is None:
            length = self.seq_len
            while length < max(map(len, ids)) and not consistent:
                length *= 2
            length = min(length, max(context, self.seq_len))
            key = len(ids), context, length, selection, consistent
            if key not in self._generators:
                options = {**self._options, "seq_len": length, **({"selection": True} if selection else {}),
                           **({"prefill_chunk": part_of(context, consistent)} if consistent else {})}
                self._generators[key] = self._load_caches(self._compile(micro_batch=len(ids), context=context, **options))
            module = self._generators[key]
            for name in self.parameters.changed:
                module.write(name, self.parameters[name])
        return Sequences(self, module, prefills=True, consistent=consistent)
