"""The losses of single tokens."""

import numpy

from nsa._arguments import array, optional, several, takes, whole
from nsa._model import Model
from nsa._runtime import InputError
from nsa._text import Text

# No vocabulary is larger.
MOST_IDS = 1 << 20

# Logits of a window that are looked at together.
_ELEMENTS = 1 << 22

_PRECISIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}


class Scorer:
    """A checkpoint, and the loss of each token of sequences under it.

    Takes what nsa.Model takes. Its programs are compiled by length: `model(length)` is the one for
    sequences of `length` tokens, of the training's length if it is None.
    """

    @takes(seq_len=optional(whole(1)))
    def __init__(self, checkpoint, *, artifact=None, seq_len=None, **options):
        self._checkpoint = checkpoint
        self._options = {**options, "artifact": artifact}
        self._fixed = artifact is not None
        if self._fixed and seq_len:
            raise InputError(f"the length is {seq_len}, but an artefact has its own")
        self._model = None
        self.longest = seq_len
        self.longest = self.model().seq_len
        [logits] = self._model.module.entries["forward"][1]
        #: The type of logits: that of the computation.
        self.precision = _PRECISIONS[self._model.module.tensors[logits][0]]
        self.text = Text(self._model.checkpoint, self._model.config)
        #: Whether documents that share a window do not see each other.
        self.is_isolated = "start" in self._model.module.entries["forward"][0]

    def _check(self, name, row):
        row, vocab = array(name, row), self.model().vocab
        if row.ndim != 1 or len(row) < 2 or not numpy.issubdtype(row.dtype, numpy.integer):
            raise InputError(f"{name} is {row.dtype} of shape {row.shape}, expected 2 or more integers")
        if row.min() < 0 or row.max() >= vocab:
            raise InputError(f"{name} has ids from {row.min()} to {row.max()}, expected 0 to {vocab - 1}")
        return row.astype(numpy.int32)

    def model(self, length=None):
        """The model for sequences up to `length`, 64 times a power of two, or the longest."""
        if self._model is not None and (self._fixed or self._model.seq_len == self._rounded(length)):
            return self._model
        # One at a time has memory.
        self._model = None
        length = self._rounded(length)
        self._model = Model(self._checkpoint, **self._options, **({"seq_len": length} if length else {}))
        return self._model

    def _rounded(self, length):
        if length is None or self.longest is None:
            return self.longest
        if length > self.longest:
            raise InputError(f"a sequence has {length} tokens, the model takes {self.longest} (--seq-len N for more)")
        size = 64
        while size < length:
            size *= 2
        return min(size, self.longest)

    def score(self, rows):
        """What each id but the first costs, given those before it.

        `rows` are arrays of 2 to longest + 1 ids. Returns for each (nats [ids - 1], whether it is
        the likeliest [ids - 1]).
        """
        rows = [self._check(f"rows[{i}]", row) for i, row in enumerate(several("rows", rows, "a list of rows"))]
        if not rows:
            return
        model = self.model(max(len(row) for row in rows) - 1)
        [ids] = model.module.entries["forward"][0][:1]
        batch = model.module.tensors[ids][1][0]
        for first in range(0, len(rows), batch):
            part = rows[first:first + batch]
            tokens = numpy.zeros((len(part), max(len(row) for row in part) - 1), numpy.int32)
            for number, row in enumerate(part):
                tokens[number, :len(row) - 1] = row[:-1]
            logits = model.logits(tokens)
            for number, row in enumerate(part):
                yield _score(logits[number, :len(row) - 1], row[1:])


def _score(logits, targets):
    """Cross-entropy of each target, in nats, and whether no other id has a larger logit."""
    nats = numpy.empty(len(targets))
    best = numpy.empty(len(targets), bool)
    step = max(1, _ELEMENTS // logits.shape[1])
    for begin in range(0, len(targets), step):
        part = logits[begin:begin + step]
        chosen = part[numpy.arange(len(part)), targets[begin:begin + step]]
        top = part.max(-1)
        total = numpy.exp(part - top[:, None]).sum(-1, dtype=numpy.float64)
        nats[begin:begin + step] = numpy.log(total) + (top.astype(numpy.float64) - chosen)
        best[begin:begin + step] = chosen == top
    if not numpy.isfinite(nats).all():
        raise InputError("the logits of the model are not finite")
    return nats, best


def check_vocabulary(scorer, largest, what):
    if largest > scorer.model().vocab:
        raise InputError(f"{what} has a vocabulary of {largest}, the model has {scorer.model().vocab}")
