"""Token shards for nsa-train: from text with any tokenizer, or from ids.

    python -m nsa.data pack books.parquet --tokenizer tokenizer.json -o shards
    python -m nsa.data train-tokenizer books.parquet --vocabulary 50257 -o tokenizer.json

    nsa.data.write_shards("shards", documents, vocabulary=50257)
    shards = nsa.data.Shards("shards")
    print(shards.read("train", 0, 10), shards.documents("train")[:3])

Reading parquet and Arrow files needs pyarrow, .zst files zstandard, and tokenizing
tokenizers; each is imported when it is needed.
"""

from nsa.data._pack import pack
from nsa.data._shards import Shards, write_shards
from nsa.data._tokenizer import train_tokenizer

__all__ = ["Shards", "pack", "train_tokenizer", "write_shards"]

Shards.__module__ = "nsa.data"
