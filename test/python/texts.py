"""Files of text in the formats that nsa.data reads."""

import gzip
import json
import random

_words = random.Random(1)
TEXTS = ["".join(_words.choice(["the ", "ü", "世界", "fox ", "\n", "12"]) for _ in range(n)) for n in range(1, 120)]
LINES = b"".join(json.dumps({"id": n, "text": text}).encode() + b"\n" for n, text in enumerate(TEXTS))


def table():
    import pyarrow
    return pyarrow.table({"id": range(len(TEXTS)), "other": ["O" * 40] * len(TEXTS), "text": TEXTS})


def parquet(**options):
    import pyarrow.parquet
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table(), sink, row_group_size=40, **options)
    return sink.getvalue().to_pybytes()


def arrow(form, compression=None):
    import pyarrow
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with {"stream": pyarrow.ipc.new_stream, "file": pyarrow.ipc.new_file}[form](sink, table().schema, options=options) as writer:
        writer.write_table(table(), max_chunksize=50)
    return sink.getvalue().to_pybytes()


def zstd(**options):
    import zstandard
    return zstandard.ZstdCompressor(**options).compress(LINES)


# The contents of a file by its name, and whether checksums are over all of the text.
KINDS = {
    "snappy.parquet": (lambda: parquet(compression="snappy", write_page_checksum=True), True),
    "plain.parquet": (lambda: parquet(compression="none", write_page_checksum=True), True),
    "unchecked.parquet": (lambda: parquet(compression="snappy"), False),
    "stream.arrow": (lambda: arrow("stream"), False),
    "file.arrow": (lambda: arrow("file"), False),
    "zstd.arrow": (lambda: arrow("file", "zstd"), False),
    "a.jsonl.gz": (lambda: gzip.compress(LINES), True),
    "a.txt.gz": (lambda: gzip.compress("".join(TEXTS).encode()), True),
    "a.jsonl.zst": (lambda: zstd(write_checksum=True), True),
    "unchecked.jsonl.zst": (zstd, False),
    "a.jsonl": (lambda: LINES, False),
    "lines.json": (lambda: LINES, False),
    "array.json": (lambda: json.dumps([{"text": text} for text in TEXTS]).encode(), False),
}
