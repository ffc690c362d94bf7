"""Compressed files, which have to be whole."""

import io
import os
import zlib

from nsa._files import open_file
from nsa._optional import require

COMPRESSED = (".gz", ".zst")
# Compressed bytes that are inflated at once: zstd makes up to 32,768 of one.
CHUNK = 1 << 12


class Damaged(Exception):
    """An error in a file, in one line that names it."""


def most_inflated(path, limit):
    """The bytes that a file may inflate to; `limit` is None for the usual ones, and 0 for any number."""
    usual = max(10**9, 100 * os.path.getsize(path))
    return (usual if limit is None else limit) or float("inf")


class _Inflated(io.RawIOBase):
    """What the gzip members or zstd frames of a file inflate to. Their lengths and checksums are compared."""

    def __init__(self, path, file, begin, limit):
        self._path, self._file, self._begin, self._most = path, file, begin, most_inflated(path, limit)
        self._stream, self._rest, self._ready, self._size = None, b"", b"", 0

    def readable(self):
        return True

    def close(self):
        self._file.close()
        super().close()

    def readinto(self, into):
        while not self._ready:
            data = self._rest or self._file.read(CHUNK)
            if not data:
                if self._stream is not None or self._file.tell() == 0:
                    raise Damaged(f"'{self._path}' is truncated: it ends after {self._size:,} bytes, within what is compressed")
                return 0
            self._inflate(data)
        count = min(len(into), len(self._ready))
        into[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _inflate(self, data):
        if self._stream is None:
            # Zeros may follow, to the end of a block of the medium.
            if self._size and not (data := data.lstrip(b"\0")):
                self._rest = b""
                return
            self._stream = self._begin()
        self._ready, self._rest = memoryview(self._stream.decompress(data)), b""
        self._size += len(self._ready)
        if self._size > self._most:
            raise Damaged(f"'{self._path}' inflates to more than {self._most:,} bytes (--max-inflated-bytes)")
        if self._stream.eof:
            self._rest, self._stream = self._stream.unused_data, None


def open_bytes(path, limit=None):
    """The bytes of a file, inflated if its name ends in .gz or .zst."""
    name = path.lower()
    begin = None
    if name.endswith(".gz"):
        begin = lambda: zlib.decompressobj(31)  # The header, the checksum and the length of gzip.
    elif name.endswith(".zst"):
        begin = require("zstandard", f"'{path}'").ZstdDecompressor().decompressobj
    file = open_file(path)
    return io.BufferedReader(_Inflated(path, file, begin, limit), 1 << 20) if begin else file
