"""Tokenizers of the library `tokenizers`."""

import json
import os
import re

import numpy as np

from nsa._files import open_file
from nsa._runtime import InputError
from nsa.data._optional import require
from nsa.data._shards import dtype_for

# How tokenizers call what ends a document, the most specific first.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>")

# Longer texts are encoded in pieces, so that memory does not grow with them.
PIECE = 1 << 20
# Between two words, where no pre-tokenizer of the byte-level family joins anything.
WORDS = re.compile(r"[A-Za-z](?= [A-Za-z])")
# Text around a cut that is encoded whole to prove that the cut changes nothing.
PROOF = 256


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
        self.end_of_text = self._find_end(path, end_of_text)
        self.cuts = self._may_cut()

    def _find_end(self, path, name):
        names = END_OF_TEXT if name is None else (name,)
        for candidate in names:
            token = self.encoder.token_to_id(candidate)
            if token is not None:
                return token
        raise InputError(f"'{path}' has no token {' or '.join(names)} to end documents (--end-of-text names one)")

    def _may_cut(self):
        """Whether a long text may be encoded in pieces: byte-level tokenizers put nothing in front of a text."""
        settings = json.loads(self.text)
        text = json.dumps([settings.get("pre_tokenizer"), settings.get("normalizer")])
        return "ByteLevel" in text and '"add_prefix_space": true' not in text and "Prepend" not in text

    def encode(self, texts):
        """The ids of each text."""
        pieces, counts = [], []
        for text in texts:
            parts = list(self._cut(text))
            pieces += parts
            counts.append(len(parts))
        encoded = iter(self.encoder.encode_batch_fast(pieces, add_special_tokens=False))
        for count in counts:
            rows = [np.array(next(encoded).ids, self.dtype) for _ in range(count)]
            yield rows[0] if count == 1 else np.concatenate(rows) if rows else np.empty(0, self.dtype)

    def _cut(self, text):
        begin = 0
        while self.cuts and len(text) - begin > 2 * PIECE:
            end = self._find_cut(text, begin + PIECE, begin + 2 * PIECE)
            if end is None:
                break
            yield text[begin:end]
            begin = end
        yield text[begin:]

    def _find_cut(self, text, first, last):
        for match in WORDS.finditer(text, first, last):
            at = match.end()
            left, right = text[at - PROOF:at], text[at:at + PROOF]
            whole, *parts = self.encoder.encode_batch_fast([left + right, left, right], add_special_tokens=False)
            if whole.ids == parts[0].ids + parts[1].ids:
                return at
        return None


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
            for text in unit.texts():
                if text is None:
                    continue
                yield text
                left -= len(text.encode())
                if left <= 0:
                    return

    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.save(str(output))
    return tokenizer.get_vocab_size()
