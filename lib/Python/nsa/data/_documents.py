"""The documents of files, and what is wrong with those that are damaged."""

import json
import os

from nsa._optional import require
from nsa._runtime import InputError
from nsa.data._inflate import COMPRESSED, Damaged, most_inflated, open_bytes

# Texts that are read from a table at once, and bytes of them.
ROWS = 256
ROW_BYTES = 16 << 20


class Bad(str):
    """An error in a document, or in the rest of a file: one line that names the location."""


def read(unit, goes_on):
    """(text, where it is) of each document of a unit, and Bad for what is none.

    If the reader goes on after damage, a compressed file is inflated to its end first: its checksum may be there.
    """
    reader = {"parquet": _parquet_texts, "lines": _line_texts, "array": _array_texts, "arrow": _arrow_texts, "text": _file_texts}
    for path in unit.paths:
        if goes_on and (bad := list(guard(path, _inflate_all(path, unit.limit)))):
            yield from bad
            continue
        yield from map(_check_text, guard(path, reader[unit.kind](path, unit)))


def guard(path, items):
    """Items of a reader; what it raises is the last one. Readers of others raise anything on damaged files."""
    try:
        yield from items
    except InputError:
        raise
    except Damaged as error:
        yield Bad(error)
    except OSError as error:
        yield Bad(f"cannot read '{path}': {error.strerror or one_line(error)}")
    except Exception as error:
        yield Bad(f"'{path}' is damaged: {one_line(error)}")


def _inflate_all(path, limit):
    if path.lower().endswith(COMPRESSED):
        with open_bytes(path, limit) as file:
            while file.read(1 << 20):
                pass
    yield from ()


def one_line(error):
    """What an exception says, without its line breaks, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def _check_text(item):
    if isinstance(item, Bad) or item[0] is None:
        return item
    try:
        item[0].encode()
    except UnicodeEncodeError as error:
        return Bad(f"{item[1]} has a lone surrogate at character {error.start}, which is no text")
    return item


# ----------------------------------------------------------------------------------------------------------------------
# Tables
# ----------------------------------------------------------------------------------------------------------------------

def _open_parquet(path):
    parquet = require("pyarrow.parquet", f"'{path}'")
    try:
        return parquet.ParquetFile(path, page_checksum_verification=True, buffer_size=1 << 20)
    except Exception as error:
        raise Damaged(f"'{path}' is no parquet file: {one_line(error)}") from error


def _check_column(path, schema, key):
    if key not in schema.names:
        raise Damaged(f"'{path}' has no column '{key}': its columns are {', '.join(schema.names)} (--text-key names one)")
    kind = str(schema.field(key).type)
    if kind not in ("string", "large_string", "string_view"):
        raise Damaged(f"column '{key}' of '{path}' holds {kind}, not text (--text-key names another one)")


def row_groups(path, key, size):
    """(first, one past the last) row groups of a parquet file that have `size` bytes together."""
    file = _open_parquet(path)
    _check_column(path, file.schema_arrow, key)
    begin = held = 0
    for group in range(file.num_row_groups if file.metadata.num_rows else 0):
        held += file.metadata.row_group(group).total_byte_size
        if held >= size or group + 1 == file.num_row_groups:
            yield begin, group + 1
            begin, held = group + 1, 0


def _parquet_texts(path, unit):
    file = _open_parquet(path)
    _check_column(path, file.schema_arrow, unit.key)
    groups = [file.metadata.row_group(group) for group in range(unit.end)]
    first, rows = (sum(group.num_rows for group in part) for part in (groups[:unit.begin], groups[unit.begin:]))
    # Not of the column alone: pyarrow's column() ends the process where statistics of sizes are damaged.
    size = sum(group.total_byte_size for group in groups[unit.begin:])
    batches = file.iter_batches(max(1, min(ROWS, ROW_BYTES * rows // max(size, 1))), row_groups=range(unit.begin, unit.end),
                                columns=[unit.key])
    seen = yield from _column_texts(path, unit, batches, first)
    if seen != rows:
        raise Damaged(f"'{path}' is damaged: it has {seen} rows where it says {rows}")


def _column_texts(path, unit, batches, row):
    """The texts of a column, which is trusted only once its offsets and its UTF-8 are checked. Returns how many."""
    size, most, begin = 0, most_inflated(path, unit.limit), row
    for batch in batches:
        column = batch.column(unit.key)
        column.validate(full=True)
        size += column.nbytes
        if size > most:
            raise Damaged(f"'{path}' inflates to more than {most:,} bytes (--max-inflated-bytes)")
        for at in range(0, len(column), ROWS):
            for text in column.slice(at, ROWS).to_pylist():
                yield text, f"row {row} of '{path}'"
                row += 1
    return row - begin


# What ends a stream of Arrow: without it, the stream may be truncated.
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


def _arrow_texts(path, unit):
    pyarrow = require("pyarrow", f"'{path}'")
    with open(path, "rb") as file:
        # datasets writes streams, others files.
        is_file = file.read(6) == b"ARROW1"
        file.seek(max(0, os.path.getsize(path) - len(STREAM_END)))
        is_ended = is_file or file.read() == STREAM_END
    # Not mapped: a file that shrinks meanwhile would end the process.
    with pyarrow.OSFile(path) as source:
        try:
            reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source)
        except Exception as error:
            raise Damaged(f"'{path}' is no Arrow file: {one_line(error)}") from error
        _check_column(path, reader.schema, unit.key)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        yield from _column_texts(path, unit, batches, 0)
        if not is_ended or (not is_file and source.tell() != source.size()):
            raise Damaged(f"'{path}' is truncated, or damaged: what ends a stream of Arrow is not at its end")


# ----------------------------------------------------------------------------------------------------------------------
# JSON and text
# ----------------------------------------------------------------------------------------------------------------------

def _line_texts(path, unit):
    """A line belongs to the unit in which it begins."""
    with open_bytes(path, unit.limit) as file:
        at = unit.begin
        if unit.begin > 0:
            file.seek(unit.begin - 1)
            at += len(file.readline()) - 1
        number = 0
        while unit.end < 0 or at < unit.end:
            line = file.readline()
            if not line:
                break
            number += 1
            place = f"line {number}" if unit.begin == 0 else f"the line at byte {at}"
            at += len(line)
            if line.strip():
                yield _line_text(line, unit.key, f"{place} of '{path}'")


def _line_text(line, key, place):
    try:
        return _record_text(json.loads(line), key, place)
    except (ValueError, RecursionError) as error:
        return Bad(f"{place} is no JSON: {one_line(error)}")


def _record_text(record, key, place):
    if not isinstance(record, dict) or key not in record:
        names = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        return Bad(f"{place} has no '{key}': it has {names[:200]} (--text-key names one)")
    text = record[key]
    if text is not None and not isinstance(text, str):
        return Bad(f"'{key}' in {place} is no text but {type(text).__name__}")
    return text, place


def _array_texts(path, unit):
    """The texts of the objects in an array of JSON; any other JSON is a text."""
    with open_bytes(path, unit.limit) as file:
        data = file.read()
    try:
        records = json.loads(data)
    except (ValueError, RecursionError) as error:
        if f'"{unit.key}"'.encode() in data:
            raise Damaged(f"'{path}' is no JSON: {one_line(error)}") from error
        records = None
    if not isinstance(records, list) or not any(isinstance(record, dict) and unit.key in record for record in records):
        yield _decode(data), f"'{path}'"
        return
    for number, record in enumerate(records):
        yield _record_text(record, unit.key, f"element {number} of '{path}'")


def _file_texts(path, unit):
    """A file is a document; what is binary, or no UTF-8, has no text."""
    with open_bytes(path, unit.limit) as file:
        yield _decode(file.read()), f"'{path}'"


def _decode(data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
