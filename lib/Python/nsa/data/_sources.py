"""Texts in files: what there is to read, in units that processes share, and their documents."""

import dataclasses
import gzip
import io
import json
import os

from nsa._runtime import InputError
from nsa.data._optional import require

# Bytes of a file, or of small files together, that are one unit of work.
UNIT_BYTES = 64 << 20
# Texts that are read from a table at once.
ROWS = 256

PARQUET = (".parquet",)
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst", ".json.gz", ".json.zst")
ARROW = (".arrow",)
# What a datasets folder keeps beside its arrow files.
ARROW_NOTES = ("dataset_info.json", "state.json", "dataset_dict.json")


@dataclasses.dataclass(frozen=True)
class Unit:
    """A part of the input that one process reads from begin to end.

    kind   parquet, lines, arrow or text
    paths  its files; one, unless they are texts
    begin  first row group of a parquet file, first byte of a file of JSON lines
    end    one behind the last
    """

    kind: str
    paths: tuple
    key: str
    begin: int = 0
    end: int = -1

    def texts(self):
        """The documents; None for one that has no text."""
        return {"parquet": _parquet_texts, "lines": _line_texts, "arrow": _arrow_texts, "text": _file_texts}[self.kind](self)


# ----------------------------------------------------------------------------------------------------------------------
# What there is to read
# ----------------------------------------------------------------------------------------------------------------------

def list_units(inputs, key):
    """The units of files and folders, in an order that depends on the names alone."""
    units, texts, size = [], [], 0
    for path in _list_files(inputs):
        name = os.path.basename(path).lower()
        if name.endswith(PARQUET):
            units += _parquet_units(path, key)
        elif name.endswith(LINES):
            units += _line_units(path, key)
        elif name.endswith(ARROW):
            units.append(Unit("arrow", (path,), key))
        else:
            texts.append(path)
            size += os.path.getsize(path)
            if size >= UNIT_BYTES:
                units.append(Unit("text", tuple(texts), key))
                texts, size = [], 0
    if texts:
        units.append(Unit("text", tuple(texts), key))
    if not units:
        raise InputError("there are no files to pack in " + ", ".join(f"'{path}'" for path in inputs))
    return units


def _list_files(inputs):
    for root in inputs:
        root = os.fspath(root)
        if os.path.isfile(root):
            yield root
            continue
        if not os.path.isdir(root):
            raise InputError(f"there is no file or folder '{root}'")
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            is_arrow = any(name.endswith(ARROW) for name in names)
            for name in sorted(names):
                path = os.path.join(folder, name)
                hidden = name.startswith(".") or os.path.islink(path) or not os.path.isfile(path)
                if not hidden and name != "dataset_dict.json" and not (is_arrow and name in ARROW_NOTES):
                    yield path


def _open_parquet(path):
    parquet = require("pyarrow.parquet", f"'{path}'")
    try:
        return parquet.ParquetFile(path, memory_map=True)
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' is no parquet file: {error}") from error


def _check_column(path, schema, key):
    if key not in schema.names:
        raise InputError(f"'{path}' has no column '{key}': its columns are {', '.join(schema.names)} (--text-key names one)")
    kind = str(schema.field(key).type)
    if kind not in ("string", "large_string", "string_view"):
        raise InputError(f"column '{key}' of '{path}' holds {kind}, not text (--text-key names another one)")


def _parquet_units(path, key):
    file = _open_parquet(path)
    _check_column(path, file.schema_arrow, key)
    if file.metadata.num_rows == 0:
        raise InputError(f"'{path}' is empty: it has 0 rows")
    begin = size = 0
    for group in range(file.num_row_groups):
        size += file.metadata.row_group(group).total_byte_size
        if size >= UNIT_BYTES or group + 1 == file.num_row_groups:
            yield Unit("parquet", (path,), key, begin, group + 1)
            begin, size = group + 1, 0


def _line_units(path, key):
    if path.endswith((".gz", ".zst")):
        return [Unit("lines", (path,), key)]
    size = os.path.getsize(path)
    return [Unit("lines", (path,), key, begin, min(begin + UNIT_BYTES, size)) for begin in range(0, size, UNIT_BYTES)]


# ----------------------------------------------------------------------------------------------------------------------
# Documents
# ----------------------------------------------------------------------------------------------------------------------

def _parquet_texts(unit):
    file = _open_parquet(unit.paths[0])
    for batch in file.iter_batches(ROWS, row_groups=range(unit.begin, unit.end), columns=[unit.key]):
        yield from batch.column(0).to_pylist()


def _arrow_texts(unit):
    pyarrow = require("pyarrow", f"'{unit.paths[0]}'")
    path = unit.paths[0]
    with pyarrow.memory_map(path) as source:
        try:
            # What datasets writes, then what others do.
            try:
                batches = reader = pyarrow.ipc.open_stream(source)
            except pyarrow.ArrowInvalid:
                reader = pyarrow.ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            _check_column(path, reader.schema, unit.key)
            for batch in batches:
                column = batch.column(unit.key)
                for at in range(0, len(column), ROWS):
                    yield from column.slice(at, ROWS).to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"'{path}' is no Arrow file: {error}") from error


def _open(path):
    """The bytes of a file, whether compressed or not."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    if path.endswith(".zst"):
        zstandard = require("zstandard", f"'{path}'")
        file = open(path, "rb")
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, closefd=True, read_across_frames=True), 1 << 20)
    return open(path, "rb")


def _line_texts(unit):
    """A line belongs to the unit in which it begins."""
    path = unit.paths[0]
    with _open(path) as file:
        at = unit.begin
        if unit.begin > 0:
            file.seek(unit.begin - 1)
            at += len(file.readline()) - 1
        number = 0
        while unit.end < 0 or at < unit.end:
            try:
                line = file.readline()
            except Exception as error:
                raise InputError(f"'{path}' is damaged: {error}") from error
            if not line:
                break
            number += 1
            place = f"line {number}" if unit.begin == 0 else f"the line at byte {at}"
            at += len(line)
            if line.strip():
                yield _line_text(line, unit.key, f"{place} of '{path}'")


def _line_text(line, key, place):
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place} is no JSON: {error}") from error
    if not isinstance(record, dict) or key not in record:
        names = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise InputError(f"{place} has no '{key}': it has {names} (--text-key names one)")
    text = record[key]
    if text is not None and not isinstance(text, str):
        raise InputError(f"'{key}' in {place} is no text but {type(text).__name__}")
    return text


def _file_texts(unit):
    """A file is a document; what is binary, or no UTF-8, has no text."""
    for path in unit.paths:
        try:
            with _open(path) as file:
                data = file.read()
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error}") from error
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        yield None if text is None or "\0" in text else text
