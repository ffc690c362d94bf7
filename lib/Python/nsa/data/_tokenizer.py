"""Tokenizers of the library `tokenizers`."""

import contextlib
import functools
import itertools
import json
import os
import re

import numpy as np

from nsa._arguments import paths, takes, whole
from nsa._files import open_file
from nsa._optional import require
from nsa._runtime import InputError, token_bytes, tokenizer_traits
from nsa.data._shards import dtype_for

# How tokenizers call what ends a document, the most specific first.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>")

# Longer texts are encoded in pieces, and so many characters at once: meanwhile the library takes a hundred bytes for each.
PIECE = 1 << 16
BATCH = 1 << 18
# Where a piece may end, how many such places are tried in each piece, and how much around one is encoded to compare.
EDGES = re.compile(r"\S(?=\s)|\w(?=[^\w\s])")
TRIES = 16
PROOF = 256


class EncodeError(InputError):
    """The library fails on the text of this number."""

    def __init__(self, number, reason):
        super().__init__(f"the tokenizer fails: {reason}")
        self.number = number


@contextlib.contextmanager
def _held_messages():
    """Suppresses what the library prints when it fails: its exception says the same."""
    try:
        terminal = os.dup(2)
    except OSError:
        # There is none.
        yield
        return
    with open(os.memfd_create("held"), "w+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            held.seek(0)
            os.write(terminal, held.read())
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def open_tokenizer(path, end_of_text=None):
    """The tokenizer of a tokenizer.json, or Bytes for "byte"."""
    return Bytes(end_of_text) if path == "byte" else Tokenizer(path, end_of_text)


class Bytes:
    """Tokens that are the bytes of UTF-8, as nsa-data pack makes them: 0 ends a document."""

    name, text, vocabulary, end_of_text, end_name, dtype = "byte", b"", 256, 0, "0", np.uint16

    def __init__(self, end_of_text):
        if end_of_text is not None:
            raise InputError(f"byte 0 ends documents of bytes, not '{end_of_text}' (--end-of-text)")

    def changes(self):
        return ""

    def encode(self, texts):
        for number, text in enumerate(texts):
            if "\0" in text:
                raise EncodeError(number, f"character {text.index(chr(0))} is NUL, which ends documents of bytes")
            yield np.frombuffer(text.encode(), np.uint8).astype(self.dtype)


class Tokenizer:
    """A tokenizer.json. Encodes texts to rows of ids that are equal to those of the library, which sees no special
    tokens in them: text is text, whatever it says."""

    def __init__(self, path, end_of_text=None):
        library = require("tokenizers", f"the tokenizer '{path}'")
        try:
            with open_file(path) as file:
                self.text = file.read()
            self.encoder = library.Tokenizer.from_buffer(self.text)
        except OSError as error:
            raise InputError(f"cannot read the tokenizer '{path}': {error.strerror}") from error
        except Exception as error:
            raise InputError(f"'{path}' is no tokenizer.json of the tokenizers library: {error}") from error
        self.encoder.encode_special_tokens = True
        self.encoder.no_truncation()
        self.encoder.no_padding()
        self.name = os.path.basename(path)
        self.vocabulary = 1 + max(self.encoder.get_vocab(with_added_tokens=True).values(), default=-1)
        if not 0 < self.vocabulary <= 1 << 20:
            raise InputError(f"'{path}' has {self.vocabulary} tokens, a vocabulary has 1 to {1 << 20}")
        self.dtype = dtype_for(self.vocabulary)
        self.end_name, self.end_of_text = self._find_end(path, end_of_text)
        self.adds_blank = '"Prepend"' in json.dumps(json.loads(self.text).get("normalizer"))

    def _find_end(self, path, name):
        names = END_OF_TEXT if name is None else (name,)
        for candidate in names:
            token = self.encoder.token_to_id(candidate)
            if token is not None:
                return candidate, token
        raise InputError(f"'{path}' has no token {' or '.join(names)} to end documents (--end-of-text names one)")

    def changes(self):
        """What it does to text before it chooses tokens, which then stand for other bytes; nothing if it does not, or tokens
        do not say their bytes."""
        try:
            return tokenizer_traits(self.text, self.name)[1]
        except InputError:
            return ""

    @functools.cached_property
    def _pairs(self):
        """Two bytes that follow each other in a token; nothing if tokens do not say their bytes."""
        try:
            words = token_bytes(self.text, self.name)
        except InputError:
            return None
        return {word[at:at + 2] for word in words for at in range(len(word) - 1)}

    def encode(self, texts):
        """The ids of each text, in order. A text that the library fails on is an EncodeError."""
        row = []
        for group in _groups(self._pieces(texts)):
            for (_, _, is_last), ids in zip(group, self._encode(group)):
                row.append(ids)
                if is_last:
                    yield row[0] if len(row) == 1 else np.concatenate(row)
                    row = []

    def _encode(self, group):
        try:
            return self._ids([piece for _, piece, _ in group], group[0][0])
        except EncodeError:
            return [self._ids([piece], number)[0] for number, piece, _ in group]

    def _ids(self, texts, number):
        try:
            with _held_messages():
                return [np.array(found.ids, self.dtype)
                        for found in self.encoder.encode_batch_fast(texts, add_special_tokens=False)]
        except (KeyboardInterrupt, SystemExit):
            raise
        # A panic of Rust is no Exception.
        except BaseException as error:
            raise EncodeError(number, " ".join(str(error).split())) from error

    def _pieces(self, texts):
        """(number of a text, piece of it, whether it is the last one): their ids, one after the other, are the text's."""
        for number, text in enumerate(texts):
            begin = 0
            while (end := self._find_cut(text, begin, number)) is not None:
                yield number, text[begin:end], False
                begin = end + self.adds_blank
            yield number, text[begin:], True

    def _find_cut(self, text, begin, number):
        while len(text) - begin > 2 * PIECE and self._pairs is not None:
            begin += PIECE
            for match in itertools.islice(EDGES.finditer(text, begin, begin + PIECE), TRIES):
                if self._may_cut(text, match.end(), number):
                    return match.end()
        return None

    def _may_cut(self, text, at, number):
        """Whether no token can lie across a place, as none of the vocabulary has the bytes there, and the text around is
        split there by all that comes before tokens are chosen."""
        left, right = text[at - PROOF:at], text[at:at + PROOF]
        if self.adds_blank:
            # The tokenizer puts the blank back.
            if right[0] != " ":
                return False
            right = right[1:]
        normalize = self.encoder.normalizer.normalize_str if self.encoder.normalizer else str
        ends = [normalize(part).replace("\u2581", " ").encode() for part in (left, right)]
        if not all(ends) or ends[0][-1:] + ends[1][:1] in self._pairs:
            return False
        whole, *parts = self._ids([text[at - PROOF:at + PROOF], left, right], number)
        return np.array_equal(whole, np.concatenate(parts))


def _groups(pieces):
    """Pieces together, up to BATCH characters."""
    group, size = [], 0
    for piece in pieces:
        group.append(piece)
        size += len(piece[1])
        if size >= BATCH or len(group) >= 1024:
            yield group
            group, size = [], 0
    if group:
        yield group


# Where GPT-2's splitting puts an end to a word, whatever is around.
WORDS = re.compile(r"[A-Za-z](?= [A-Za-z])")


def _words(text):
    """A text in pieces that have the same words."""
    begin = 0
    while len(text) - begin > 2 * PIECE and (match := WORDS.search(text, begin + PIECE)):
        yield text[begin:match.end()]
        begin = match.end()
    yield text[begin:]


@takes(inputs=paths, vocabulary=whole(), max_bytes=whole())
def train_tokenizer(inputs, output, *, vocabulary=50257, text_key="text", max_bytes=0, progress=True):
    """Trains a byte-level BPE, as GPT-2's, on text and saves its tokenizer.json.

    inputs      files and folders, as for pack
    output      path of the tokenizer.json
    vocabulary  tokens in all: 256 bytes, <|endoftext|>, and merges
    max_bytes   stops after so much text; 0 takes all

    Returns the tokens that it has: fewer than asked for where the text has no more pairs to merge.
    """
    from nsa.data._sources import list_units

    library = require("tokenizers", "training a tokenizer")
    if not 257 <= vocabulary <= 1 << 20:
        raise InputError(f"a byte-level vocabulary has 257 to {1 << 20} tokens, not {vocabulary}")
    units = list_units(inputs, text_key)
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<|endoftext|>"], show_progress=progress,
                                          initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet())

    def texts():
        left = max_bytes or float("inf")
        for unit in units:
            for text, _ in unit.texts():
                if text is None:
                    continue
                yield from _words(text)
                left -= len(text.encode())
                if left <= 0:
                    return

    tokenizer.train_from_iterator(texts(), trainer)
    try:
        tokenizer.save(os.fspath(output))
    except Exception as error:
        raise InputError(f"cannot write '{output}': {error}") from error
    return tokenizer.get_vocab_size()
