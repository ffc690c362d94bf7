"""Data sets from token ids."""

import numpy as np

from nsa import _runtime
from nsa._arguments import optional, path, takes, text, truth, whole
from nsa._files import open_file
from nsa._runtime import InputError, ShardWriter, __version__

TOOL = f"nsa.data {__version__}"

# Tokens of a shard unless told otherwise: 200 MB of u16.
SHARD_TOKENS = 100_000_000


def dtype_for(vocabulary):
    """The type in which shards keep tokens below `vocabulary`."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def as_ids(ids, vocabulary, what):
    """`ids` as a dense row of the type of the shards, or an error that names the first id that is outside."""
    try:
        ids = np.asarray(ids)
    except Exception as error:
        raise InputError(f"{what} must be a row of integers: {' '.join(str(error).split())}") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"{what} must be a row of integers, not {ids.dtype} of shape {ids.shape}")
    outside = (ids < 0) | (ids >= vocabulary)
    if outside.any():
        at = int(outside.argmax())
        raise InputError(f"{what}: id {ids[at]} at position {at} is not in 0..{vocabulary - 1}, the vocabulary has {vocabulary}")
    return np.ascontiguousarray(ids, dtype_for(vocabulary))


class Shards(_runtime.Shards):
    """A data set: token shards with their manifest."""

    @takes(directory=path)
    def __init__(self, directory):
        super().__init__(directory)

    @takes(split=text, position=whole(0, (1 << 64) - 1), count=whole(0, (1 << 64) - 1))
    def read(self, split, position, count):
        """Tokens of a split, as int32."""
        return super().read(split, position, count)

    @takes(split=text)
    def documents(self, split):
        """Positions at which the documents of a split begin; empty if the data set does not say."""
        return super().documents(split)

    @takes(split=text)
    def size(self, split):
        """Tokens of a split."""
        return super().size(split)


def _rows(documents, split):
    try:
        return iter(documents)
    except Exception as error:
        raise InputError(f"the split '{split}' must be rows of integers: {error}") from error


@takes(output=path, vocabulary=whole(), end_of_text=whole(-1), tokenizer=optional(path), overwrite=truth, shard_tokens=whole())
def write_shards(output, train, val=None, *, vocabulary, end_of_text=-1, tokenizer=None, overwrite=False,
                 shard_tokens=SHARD_TOKENS):
    """Writes ids that were made elsewhere as a data set for nsa-train.

    output       folder of the data set
    train, val   documents: an iterable of rows of ids, or one row, which is one document. Without `val` the data set
                 has no validation split, and nsa-train refuses it
    vocabulary   every id is below it; at most 2^20. Up to 2^16 ids are kept in 16 bits, beyond in 32
    end_of_text  the id that ends documents, if there is one; it is not added
    tokenizer    path of the tokenizer.json that made the ids, which then travels with the data
    overwrite    replaces the data set in the folder

    An id that is not below the vocabulary is an nsa.InputError that names it, its document and its position.
    """
    whole(-1, max(vocabulary - 1, 0))("end_of_text", end_of_text)
    writer = ShardWriter(output, overwrite, vocabulary, shard_tokens)
    if tokenizer is not None:
        try:
            with open_file(tokenizer) as file:
                writer.set_tokenizer(file.read())
        except OSError as error:
            raise InputError(f"cannot read the tokenizer '{tokenizer}': {error.strerror}") from error
    for split, documents in (("train", train), ("val", val)):
        if documents is None:
            continue
        if isinstance(documents, np.ndarray) and documents.ndim == 1 and documents.dtype != object:
            documents = [documents]
        for number, document in enumerate(_rows(documents, split)):
            ids = as_ids(document, vocabulary, f"document {number} of the split '{split}'")
            if len(ids):
                writer.append(split, ids, np.array([len(ids)], np.uint64))
    writer.finish(kind="tokens", tool=TOOL, end_of_text=end_of_text, options=[], counts=[], source_digest=0)
