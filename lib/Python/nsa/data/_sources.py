"""Texts in files: what there is to read, in units that processes share."""

import dataclasses
import fnmatch
import itertools
import json
import os

from nsa._runtime import InputError
from nsa.data import _documents
from nsa.data._documents import Bad
from nsa.data._inflate import COMPRESSED, open_bytes

# Bytes of a file, or of small files together, that are one unit of work.
UNIT_BYTES = 64 << 20

KINDS = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "lines", ".ndjson": "lines", ".json": "json"}
# What a datasets folder keeps beside its arrow files.
ARROW_NOTES = ("dataset_info.json", "state.json", "dataset_dict.json")


@dataclasses.dataclass(frozen=True)
class Unit:
    """A part of the input that one process reads from begin to end.

    kind   parquet, lines, array (of objects, in JSON), arrow or text
    paths  its files; one, unless they are texts
    begin  first row group of a parquet file, first byte of a file of JSON lines
    end    one past the last
    limit  bytes that a file may inflate to, 0 for any; None for 10^9, or a hundred times its size
    """

    kind: str
    paths: tuple
    key: str
    begin: int = 0
    end: int = -1
    limit: int | None = None

    def texts(self, skip=None):
        """(text, where it is) of each document; the text is None if it has none.

        What is damaged is an InputError, or is told to `skip`, and the next document is read.
        """
        for item in _documents.read(self, goes_on=skip is not None):
            if not isinstance(item, Bad):
                yield item
            elif skip is None:
                raise InputError(item)
            else:
                skip(item)


def list_units(inputs, key, limit=None, skip=None, warn=None, include=(), exclude=()):
    """The units of files and folders, in an order that depends on the names alone.

    `skip` is told of files that are damaged, which is an error otherwise, and `warn` of links that are not followed.
    `include` and `exclude` are globs of files.
    """
    units, texts, size, files = [], [], 0, 0
    for path in _list_files(inputs, warn):
        if _matches(path, exclude) or (include and not _matches(path, include)):
            continue
        files += 1
        kind = _find_kind(path, key, limit)
        if kind == "text":
            texts.append(path)
            size += os.path.getsize(path)
            if size >= UNIT_BYTES:
                units.append(Unit("text", tuple(texts), key, limit=limit))
                texts, size = [], 0
        for item in _units_of(path, kind, key, limit):
            if not isinstance(item, Bad):
                units.append(item)
            elif skip is None:
                raise InputError(item)
            else:
                skip(item)
    if texts:
        units.append(Unit("text", tuple(texts), key, limit=limit))
    if not units:
        what = f"none of the {files} files has a document" if files else "there are no files to pack"
        raise InputError(f"{what} in " + ", ".join(f"'{path}'" for path in inputs))
    return units


def _units_of(path, kind, key, limit):
    if kind == "parquet":
        for item in _documents.guard(path, _documents.row_groups(path, key, UNIT_BYTES)):
            yield item if isinstance(item, Bad) else Unit(kind, (path,), key, *item, limit)
    elif kind == "lines" and not path.lower().endswith(COMPRESSED):
        size = os.path.getsize(path)
        for begin in range(0, size, UNIT_BYTES):
            yield Unit(kind, (path,), key, begin, min(begin + UNIT_BYTES, size))
    elif kind != "text":
        yield Unit(kind, (path,), key, limit=limit)


def _find_kind(path, key, limit):
    """The kind of the units of a file. Of a .json, its contents decide."""
    name, ending = os.path.splitext(path.lower())
    packed = ending in COMPRESSED
    kind = KINDS.get(os.path.splitext(name)[1] if packed else ending, "text")
    if kind == "json":
        return _find_json_kind(path, key, limit)
    return "text" if packed and kind != "lines" else kind


def _find_json_kind(path, key, limit):
    """lines if one of the first lines is an object of its own, array if it may be one of objects, text otherwise."""
    try:
        with open_bytes(path, limit) as file:
            lines = (line.strip() for line in iter(lambda: file.readline(UNIT_BYTES), b""))
            first = list(itertools.islice(filter(None, lines), 8))
    except InputError:
        raise
    except Exception:
        # Reading it as lines says why.
        return "lines"
    if not first or first[0].lstrip(b"\xef\xbb\xbf")[:1] == b"[":
        return "array" if first else "text"
    for line in first:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and (len(first) > 1 or key in record):
            return "lines"
    return "text"


# ----------------------------------------------------------------------------------------------------------------------
# Folders
# ----------------------------------------------------------------------------------------------------------------------

def _matches(path, globs):
    return any(fnmatch.fnmatchcase(path if "/" in glob else os.path.basename(path), glob) for glob in globs)


def _list_files(inputs, warn):
    links = []
    for root in inputs:
        root = os.fspath(root)
        if os.path.isfile(root):
            yield root
            continue
        if not os.path.isdir(root):
            raise InputError(f"there is no file or folder '{root}'")
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            links += [path for path in (os.path.join(folder, name) for name in folders) if os.path.islink(path)]
            _enter_hub(folder, folders)
            is_arrow = any(name.lower().endswith(".arrow") for name in names)
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name.startswith(".") or name == "dataset_dict.json" or (is_arrow and name in ARROW_NOTES):
                    continue
                if os.path.islink(path) and not _is_hub_link(path):
                    links.append(path)
                elif os.path.isfile(path):
                    yield path
    if links and warn:
        warn(f"symbolic links not followed: {len(links)}, the first is '{links[0]}' (give what it stands for by its name)")


def _enter_hub(folder, folders):
    """Of a repository in a cache of the Hugging Face hub, the files of its snapshot are taken, by their names."""
    if {"blobs", "snapshots"} <= set(folders):
        snapshots = os.listdir(os.path.join(folder, "snapshots"))
        if len(snapshots) > 1:
            raise InputError(f"'{folder}/snapshots' has {len(snapshots)} snapshots of one data set: give one of them by its name")
        folders[:] = ["snapshots"]


def _is_hub_link(path):
    """Whether a link stands for a file of a hub's cache, which has to be there."""
    target = os.path.realpath(path)
    repository, blobs = os.path.split(os.path.dirname(target))
    if blobs != "blobs" or not os.path.isdir(os.path.join(repository, "snapshots")):
        return False
    if not os.path.isfile(target):
        raise InputError(f"'{path}' is a link to '{target}', which is not there: the download is not complete")
    return True
