"""Loss and bits per byte on shards or text."""

import itertools
import math

import numpy

from nsa._arguments import instance, optional, path, paths, takes, text, whole
from nsa._runtime import InputError
from nsa._text import same_ids
from nsa.data import Shards
from nsa.data._sources import list_units
from nsa.data._tokenizer import EncodeError
from nsa.evaluate._scores import Scorer, check_vocabulary


# Tokens of a data set that are looked at together.
_TOKENS = 1 << 24


class _Stream:
    """Tokens in a row, and where documents begin in it; no array if that is unknown.

    `blanks` are those with a space that the tokenizer put in front, if it does so; all, unless it is said.
    """

    def __init__(self, name, size, read, starts, blanks=None):
        self.name, self.size, self.read = name, size, read
        self._starts = numpy.asarray(starts, numpy.int64)
        self._blanks = self._starts if blanks is None else blanks

    def starts_within(self, begin, count):
        """Where documents begin among `count` tokens from `begin` on."""
        if not len(self._starts):
            raise InputError(f"{self.name} does not say where documents begin, which data.isolate_documents needs")
        first, last = numpy.searchsorted(self._starts, [begin, begin + count])
        return self._starts[first:last]

    def blanks_within(self, begin, count):
        """Which of `count` tokens from `begin` on have a space of the tokenizer in front, if it puts one there."""
        first, last = numpy.searchsorted(self._blanks, [begin, begin + count])
        return self._blanks[first:last] - begin

    def document_lengths(self, begin, count):
        """For each of `count` tokens from `begin` on, how many its document has; None if that is unknown."""
        if not len(self._starts):
            return None
        ends = numpy.append(self._starts[1:], self.size)
        document = numpy.searchsorted(self._starts, numpy.arange(begin, begin + count), "right") - 1
        document = numpy.maximum(document, 0)
        return ends[document] - self._starts[document]


def _open_shards(scorer, folder, split):
    shards = Shards(str(folder))
    check_vocabulary(scorer, shards.vocabulary, f"'{folder}'")
    if shards.tokenizer and scorer.text.kind != "none" and not same_ids(shards.tokenizer, scorer.text.source):
        other = "has another one" if scorer.text.kind == "tokenizer" else "was trained on bytes"
        raise InputError(f"'{folder}' has a tokenizer, and the checkpoint {other}")
    is_text = scorer.text.kind == "tokenizer" or (scorer.text.kind == "byte" and shards.kind == "text" and
                                                  not shards.tokenizer)
    starts = shards.documents(split)
    if not len(starts) and shards.end_of_text >= 0:
        starts = _find_documents(shards, split)
    return _Stream(f"{folder} ({split})", shards.size(split), lambda begin, count: shards.read(split, begin, count),
                   starts), is_text


def _find_documents(shards, split):
    """Where documents begin in a data set without an index of them: after each token that ends one."""
    size, starts = shards.size(split), [numpy.zeros(1, numpy.int64)]
    for begin in range(0, size, _TOKENS):
        ids = shards.read(split, begin, min(_TOKENS, size - begin))
        starts.append(begin + 1 + numpy.flatnonzero(ids == shards.end_of_text))
    found = numpy.concatenate(starts)
    return found[found < size]


def _open_text(scorer, files, text_key):
    """Documents one after the other, each ended as in training; what ends one comes before the first as well."""
    found = [item for unit in list_units(paths("files", files), text_key) for item in unit.texts() if item[0]]
    if not found:
        raise InputError("there is no text in " + ", ".join(f"'{file}'" for file in files))
    texts = [text for text, _ in found]
    try:
        rows = list(scorer.text.encode(texts))
    except EncodeError as error:
        raise InputError(f"{found[error.number][1]}: {error}") from error
    end = [] if scorer.text.end is None else [scorer.text.end]
    ids = numpy.concatenate([numpy.array(end, numpy.int32)] +
                            [numpy.append(row, end).astype(numpy.int32) for row in rows])
    check_vocabulary(scorer, int(ids.max()) + 1, "the text")
    lengths = numpy.array([len(row) + len(end) for row in rows])
    starts = numpy.cumsum(lengths) - lengths + len(end)
    # Most tokenizers put none before a space.
    is_added = [scorer.text.count_bytes(row) > len(text.encode()) for text, row in zip(texts, rows)]
    return _Stream(", ".join(map(str, files)), len(ids), lambda begin, count: ids[begin:begin + count], starts,
                   starts[is_added])


def _choose(stream, length, count, partial):
    """Windows evenly over the stream, as nsa-train chooses them: [(first token, ids)]. `partial` adds a shorter one."""
    whole = (stream.size - 1) // length
    windows = [(i * length, length + 1) for i in range(whole)]
    if partial and (stream.size - 1) % length:
        windows.append((whole * length, stream.size - whole * length))
    if not windows:
        raise InputError(f"{stream.name} has {stream.size} tokens, a window needs {2 if partial else length + 1}")
    if count and count < len(windows):
        windows = [windows[i * len(windows) // count] for i in range(count)]
    return windows


class _Sums:
    """Losses by a whole number, in ranges that double."""

    def __init__(self):
        self._sums = {}
        self._largest = 0

    def add(self, keys, nats):
        self._largest = max(self._largest, int(numpy.max(keys)))
        ranges = numpy.frexp(numpy.asarray(keys, numpy.float64))[1]
        for power in numpy.unique(ranges):
            chosen = nats[ranges == power]
            count, total = self._sums.get(int(power), (0, 0.0))
            self._sums[int(power)] = (count + len(chosen), total + float(chosen.sum()))

    def rows(self):
        return [{"from": 1 << (power - 1), "to": min((1 << power) - 1, self._largest), "tokens": count,
                 "loss": total / count} for power, (count, total) in sorted(self._sums.items())]


@takes(scorer=instance(Scorer), shards=optional(path), split=text, text_key=text, windows=whole())
def loss(scorer, *, shards=None, split="val", files=None, text_key="text", windows=0):
    """The loss of a checkpoint on a data set, or on text.

    `shards` is a folder as nsa-train's --data: its windows of `scorer.longest` tokens are those
    that nsa-train evaluates, `windows` of them evenly over `split`, or all (0). `files` are what
    nsa.data.pack takes, tokenized by the checkpoint's tokenizer: documents one after the other. Of a
    model with data.isolate_documents, each document in a window is a sequence of its own.

    Returns a dict: loss (nats per token), perplexity, bits_per_byte (None where tokens stand for
    no text; of text_after, where the tokenizer changes text before), tokens, windows; by_position in the window, counted from 1, and by_document_length
    in tokens with the one that ends it (None where the data set does not say where documents
    begin): lists of {from, to, tokens, loss}.
    """
    if shards is not None:
        stream, is_text = _open_shards(scorer, shards, split)
    else:
        stream, is_text = _open_text(scorer, files, text_key), True
    chosen = _choose(stream, scorer.longest, windows, partial=shards is None)
    positions, lengths = _Sums(), _Sums()
    total, tokens, size = 0.0, 0, 0
    for begin, first, row, nats in _scored(scorer, _pieces(stream, chosen, scorer.is_isolated)):
        total += float(nats.sum())
        tokens += len(nats)
        if is_text:
            size += scorer.text.count_bytes(row[1:], stream.blanks_within(begin + first + 1, len(nats)))
        positions.add(first + numpy.arange(1, len(row)), nats)
        documents = stream.document_lengths(begin + first + 1, len(nats))
        if documents is not None:
            lengths.add(documents, nats)
    if tokens == 0:
        raise InputError(f"no token of {stream.name} is a target: each begins a document")
    mean = total / tokens
    return {"data": stream.name, "windows": len(chosen), "seq_len": scorer.longest, "tokens": tokens, "loss": mean,
            "perplexity": math.exp(min(mean, 700.0)), "bytes": size or None,
            "bits_per_byte": total / math.log(2) / size if size else None,
            "text_after": scorer.text.changes if size and scorer.text.changes else None,
            "by_position": positions.rows(), "by_document_length": lengths.rows() or None}


def _pieces(stream, windows, isolated):
    """(first token of the window, where in it the piece begins, ids): windows, or the documents in them."""
    for begin, count in windows:
        row = stream.read(begin, count)
        edges = [0, *(stream.starts_within(begin + 1, count - 1) - begin if isolated else ()), count]
        for first, end in zip(edges, edges[1:]):
            if end - first > 1:
                yield begin, first, row[first:end]


def _scored(scorer, pieces):
    """Pieces with their scores, some at a time: the data set may be larger than memory."""
    while pending := list(itertools.islice(pieces, 64)):
        for (begin, first, row), (nats, _) in zip(pending, scorer.score([row for _, _, row in pending])):
            yield begin, first, row, nats
