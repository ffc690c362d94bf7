"""Text generation with a model."""

import numpy


def draw(logits, random, temperature, top_k, top_p):
    """An id by its logits [vocab]: of the `top_k` most likely ones (0: all), the fewest that have the part `top_p` of the
    probability; the most likely one where the temperature is 0."""
    best = int(logits.argmax())
    if temperature == 0:
        return best
    # Ids in their order, or, where some are left out, the most likely ones first.
    order = numpy.argsort(-logits, kind="stable")[:top_k or None] if top_k or top_p < 1 else slice(None)
    weights = numpy.exp((logits[order].astype(numpy.float64) - logits[best]) / temperature)
    sums = numpy.cumsum(weights)
    kept = int(numpy.searchsorted(sums, top_p * sums[-1])) + 1 if top_p < 1 else len(sums)
    target = random.random() * sums[min(kept, len(sums)) - 1]
    place = min(int(numpy.searchsorted(sums, target, side="right")), len(sums) - 1)
    return place if isinstance(order, slice) else int(order[place])


def logprob(logits, token):
    """The natural logarithm of the probability of an id by its logits [vocab]."""
    wide = logits.astype(numpy.float64)
    largest = wide.max()
    return float(wide[token] - largest - numpy.log(numpy.exp(wide - largest).sum()))


def _ascending(blocks):
    """Lists of blocks, which kernels of GPUs write as they find them, with -1 past the last."""
    return numpy.sort(blocks.view(numpy.uint32), -1).view(numpy.int32)


class Generator:
    """A module with the entry decode, whose parameters are loaded, for a batch of sequences; prompts are prefilled if it has
    the entry prefill, else they go on one token at a time."""

    def __init__(self, module):
        self._module = module
        if "prepare" in module.entries:
            module.run("prepare", {})
        self.batch = module.tensors["token"][1][0]
        self._length = module.tensors["tokens"][1][1] if "prefill" in module.entries else 0
        self.vocab = module.tensors["next_logits"][1][2]
        self._layers = sum(name.startswith("next_selection.") for name in module.entries["decode"][1])
        self._blocks = [[] for _ in range(self.batch)]

    def prefill(self, prompts):
        """Takes a prompt of ids for each sequence; returns the logits after each."""
        logits = numpy.empty((len(prompts), self.vocab), numpy.float32)
        if self._length:
            tokens = numpy.zeros((self.batch, self._length), numpy.int32)
            positions = numpy.full(self.batch, -1, numpy.int32)
            for row, ids in enumerate(prompts):
                first = ids[:self._length]
                tokens[row, :len(first)] = first
                positions[row] = len(first) - 1
            logits = self._run("prefill", tokens=tokens, positions=positions)[:len(prompts)]
        for at in range(self._length, max(map(len, prompts))):
            ids = [prompt[at] if at < len(prompt) else -1 for prompt in prompts]
            new = self.append(ids, [at] * len(prompts))
            for row, token in enumerate(ids):
                if token >= 0:
                    logits[row] = new[row]
        return logits

    def append(self, ids, positions):
        """Appends an id at its position to each sequence, none where it is -1; returns the logits after each."""
        token = numpy.zeros((self.batch, 1), numpy.int32)
        place = numpy.full(self.batch, -1, numpy.int32)
        for row, (own, position) in enumerate(zip(ids, positions)):
            if own >= 0:
                token[row], place[row] = own, position
        return self._run("decode", token=token, positions=place)[:len(ids)]

    def _run(self, entry, **inputs):
        results = self._module.run(entry, inputs)
        if self._layers:
            prefix = "next_selection." if entry == "decode" else "selection."
            blocks = numpy.stack([results[f"{prefix}{layer}"] for layer in range(self._layers)])
            for row, last in enumerate(inputs["positions"]):
                if last >= 0:
                    self._blocks[row].append(_ascending(blocks[:, row, :, :last + 1]))
        return numpy.array(results["next_logits"][:, 0], numpy.float32)

    def selection(self, row):
        """The blocks that a sequence has selected: int32 [layers, Hkv, ids, count]."""
        return numpy.concatenate(self._blocks[row], 2)

    def logprobs(self, prompts, continuations):
        """Of each id of the continuations, by the same programs as generate runs."""
        found = [[] for _ in prompts]
        logits = self.prefill(prompts)
        for step in range(max(map(len, continuations))):
            ids = [own[step] if step < len(own) else -1 for own in continuations]
            for row, token in enumerate(ids):
                if token >= 0:
                    found[row].append(logprob(logits[row], token))
            if step + 1 < max(map(len, continuations)):
                logits = self.append(ids, [len(prompt) + step for prompt in prompts])
        return found

    def generate(self, prompts, tokens, seed, sampling, is_done, logprobs=None):
        """The ids that follow each prompt. `is_done(row, ids)` ends a sequence early. Appends to `logprobs`, a list for each
        prompt, if it is given."""
        randoms = [numpy.random.default_rng([seed, row]) for row in range(len(prompts))]
        results = [[] for _ in prompts]
        done = [False] * len(prompts)
        logits = self.prefill(prompts)
        while True:
            ids = []
            for row, random in enumerate(randoms):
                if not done[row]:
                    results[row].append(draw(logits[row], random, *sampling))
                    if logprobs is not None:
                        logprobs[row].append(logprob(logits[row], results[row][-1]))
                    done[row] = len(results[row]) == tokens or is_done(row, results[row])
                ids.append(-1 if done[row] else results[row][-1])
            if all(done):
                return results
            logits = self.append(ids, [len(p) + len(r) - 1 for p, r in zip(prompts, results)])
