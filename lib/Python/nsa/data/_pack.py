"""Text to token shards, on many processes."""

import array
import collections
import dataclasses
import json
import multiprocessing
import os
import shutil
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from nsa._arguments import optional, path, paths, real, takes, whole
from nsa._runtime import InputError, ShardWriter, hash64
from nsa.data._progress import Progress
from nsa.data._shards import SHARD_TOKENS, TOOL
from nsa.data._sources import Unit, list_units
from nsa.data._tokenizer import BATCH, EncodeError, open_tokenizer

SPLITS = ("train", "val")
# Below the output folder: what is done of a data set that is not complete.
PARTS = ".nsa-data.parts"


@dataclasses.dataclass
class _Job:
    """The parameters of a worker process."""

    tokenizer: str
    end_of_text: str | None
    val_fraction: float
    parts: str
    names: list
    skip_bad: int

    def part(self, number):
        return _Part(self.parts, self.names[number])


_tokenizer = None


def _start(job):
    """Makes a process ready: it uses one core."""
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = open_tokenizer(job.tokenizer, job.end_of_text)


class _Part:
    """The files of a unit that is done. The last one that is written says so."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)

    def file(self, split, kind):
        return f"{self.path}.{split}.{kind}"

    def result(self):
        """What it says, or None."""
        try:
            with open(f"{self.path}.json") as file:
                return {"skipped": [], **json.load(file)}
        except (OSError, ValueError):
            return None

    def remove(self):
        """Removes an incomplete part."""
        for split in SPLITS:
            if os.path.exists(self.file(split, "ids")):
                os.remove(self.file(split, "ids"))

    def write_result(self, result):
        _write_json(f"{self.path}.json", result)


def _write_json(path, value):
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        json.dump(value, file)
    os.replace(temporary, path)


class _Skipped(list):
    """Errors of documents that are skipped; one too many is an error."""

    def __init__(self, most):
        super().__init__()
        self._most = most

    def add(self, message):
        if len(self) == self._most:
            raise InputError(message + (f" (one more than the {self._most} that --skip-bad leaves out)" if self._most else ""))
        self.append(str(message))


def _tokenize(job, number, unit):
    """Writes the tokens of a unit, by split, and returns what was in it."""
    part = job.part(number)
    ids = {split: open(part.file(split, "ids"), "wb") for split in SPLITS}
    lengths = {split: array.array("Q") for split in SPLITS}
    counts = {"documents": 0, "held_out": 0, "without_text": 0, "bytes": 0, "tokens": 0}
    skipped = _Skipped(job.skip_bad)
    digest, end = [], np.array([_tokenizer.end_of_text], _tokenizer.dtype)
    for batch in _batches(unit.texts(skipped.add if job.skip_bad else None), counts):
        for (text, _), row in zip(batch, _encode(batch, skipped)):
            data = text.encode()
            value = hash64(data)
            split = "val" if value < job.val_fraction * 2**64 else "train"
            ids[split].write(row.tobytes())
            ids[split].write(end.tobytes())
            lengths[split].append(len(row) + 1)
            digest.append(f"{len(data)} {value:016x}\n")
            counts["documents"] += 1
            counts["held_out"] += split == "val"
            counts["bytes"] += len(data)
            counts["tokens"] += len(row) + 1
    for split in SPLITS:
        ids[split].close()
        with open(part.file(split, "lengths"), "wb") as file:
            lengths[split].tofile(file)
    result = {**counts, "digest": hash64("".join(digest).encode()), "skipped": skipped}
    part.write_result(result)
    return result


def _encode(batch, skipped):
    """The ids of texts; those that the tokenizer fails on leave the batch."""
    while True:
        try:
            return list(_tokenizer.encode([text for text, _ in batch]))
        except EncodeError as error:
            skipped.add(f"{batch[error.number][1]}: {error}")
            del batch[error.number]


def _batches(texts, counts):
    """Texts together, up to BATCH characters; those without text are counted."""
    batch, size = [], 0
    for text, place in texts:
        if not text:
            counts["without_text"] += 1
            continue
        batch.append((text, place))
        size += len(text)
        if size >= BATCH or len(batch) >= 1024:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _hash(value):
    return f"{hash64(json.dumps(value).encode()):016x}"


def _name_parts(units):
    """Names of the parts of units, which do not depend on other files."""
    seen = collections.Counter()
    for unit in units:
        name = _hash([unit.kind, unit.key, unit.begin, unit.end,
                      [[os.path.abspath(path), os.path.getsize(path), os.stat(path).st_mtime_ns] for path in unit.paths]])
        # A file may be given twice.
        yield f"{name}-{seen[name]}"
        seen[name] += 1


def _check_output(*arguments):
    """Reports a folder that is not empty, or a wrong option, before hours of work."""
    ShardWriter(*arguments)


def _open_parts(output, plan, overwrite):
    """The folder of the parts, with those of an interrupted packing of the same plan."""
    folder = os.path.join(output, PARTS)
    try:
        with open(os.path.join(folder, "plan.json")) as file:
            found = json.load(file).get("plan")
    except (OSError, ValueError):
        found = None
    if found != plan and os.path.exists(folder):
        if not overwrite:
            raise InputError(f"'{folder}' has parts of another packing that was interrupted: other options or another "
                             "tokenizer (--overwrite discards them)")
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    if found != plan:
        _write_json(os.path.join(folder, "plan.json"), {"plan": plan})
    return folder


def _run(job, units, workers, progress, skipped):
    """Tokenizes what is not done yet. Returns the results in order."""
    results = [job.part(number).result() for number in range(len(units))]
    left = [number for number, result in enumerate(results) if result is None]

    def note(*found):
        for result in found:
            for message in result["skipped"]:
                skipped.add(message)
        done = [result for result in results if result is not None]
        progress.update(len(done), sum(result["tokens"] for result in done))

    for number in left:
        job.part(number).remove()
    note(*filter(None, results))
    # Damaged tables may end a process, which must not be this one.
    if (workers == 1 or len(left) <= 1) and not any(units[number].kind in ("parquet", "arrow") for number in left):
        for number in left:
            if number == left[0]:
                _start(job)
            results[number] = _tokenize(job, number, units[number])
            note(results[number])
        return results
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(left)), context, _start, (job,)) as pool:
        futures = {pool.submit(_tokenize, job, number, units[number]): number for number in left}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                note(results[futures[future]])
        except BrokenProcessPool as error:
            raise InputError(_name_lost(job, units, left)) from error
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return results


def _name_lost(job, units, left):
    """What was read when a process was killed: the units that were begun now and have no result."""
    parts = {number: job.part(number) for number in left}
    begun = [number for number, part in parts.items() if os.path.exists(part.file("train", "ids")) and part.result() is None]
    names = sorted({path for number in begun for path in units[number].paths})
    return (f"a process was killed, or crashed, while it read one of {', '.join(map(repr, names[:8]))}"
            f"{', ...' if len(names) > 8 else ''}; what is done is kept, and the same command goes on, also without that file")


def _assemble(writer, job, dtype):
    """Passes the parts to the writer of the shards, in order, some megabytes at a time."""
    for number in range(len(job.names)):
        part = job.part(number)
        for split in SPLITS:
            lengths = np.fromfile(part.file(split, "lengths"), np.uint64)
            with open(part.file(split, "ids"), "rb") as file:
                for group in np.array_split(lengths, max(1, int(lengths.sum()) >> 22)):
                    ids = np.fromfile(file, dtype, int(group.sum()))
                    if len(ids) != int(group.sum()):
                        raise InputError(f"'{part.file(split, 'ids')}' is truncated: remove '{job.parts}' and pack again")
                    if len(ids):
                        writer.append(split, ids, group)


def _find_problem(documents, held_out, val_fraction):
    """What makes the documents no data set, or None."""
    if documents == 0:
        return "there is no text: every document is empty, binary or missing"
    if documents == held_out:
        return f"all {documents} documents are in the validation split: a smaller --val-fraction than {val_fraction} leaves some"
    if held_out == 0 and val_fraction > 0:
        return f"none of the {documents} documents is in the validation split: a larger --val-fraction than {val_fraction} takes some"
    return None


@takes(inputs=paths, output=path, tokenizer=path, val_fraction=real("a number in [0, 1)", lambda value: 0 <= value < 1),
       workers=optional(whole(1)), shard_tokens=whole(), include=paths, exclude=paths, max_inflated_bytes=optional(whole()),
       skip_bad=whole())
def pack(inputs, output, *, tokenizer, text_key="text", end_of_text=None, val_fraction=0.01, workers=None,
         shard_tokens=SHARD_TOKENS, include=(), exclude=(), max_inflated_bytes=None, skip_bad=0, overwrite=False, progress=True,
         warn=warnings.warn):
    """Tokenizes text into a data set for nsa-train.

    inputs        files and folders: parquet, JSON lines (.jsonl, .ndjson, also .gz and .zst), Arrow files as the library
                  datasets saves them, .json by what is in it, and any other file as one document of UTF-8 text
    output        folder of the data set
    tokenizer     path of a tokenizer.json of the tokenizers library, or "byte": tokens are bytes, and 0 ends documents
    text_key      column of tables and name in JSON lines that holds the text
    end_of_text   the token that ends each document; by default the first of <|endoftext|>, <|end_of_text|>, <|eot_id|>,
                  </s>, <eos> that the tokenizer has
    val_fraction  share of the documents in the validation split, chosen by their hash
    workers       processes; by default one for each core
    include, exclude    globs of the files to take, all without any, and to leave out, by their names, or paths if one has a slash
    max_inflated_bytes  what a file may inflate to, 0 for any; by default 10^9, or a hundred times its size
    skip_bad      how many bad documents, or files whose rest is lost, are left out; each is told to `warn`
    overwrite     replaces the data set in the folder

    A packing that was interrupted goes on where it was when it is started again with the same options: what is done of files
    that are as they were is kept, whatever became of others. Returns counts: documents, without_text, bytes, tokens, skipped.
    """
    made, skipped = open_tokenizer(tokenizer, end_of_text), _Skipped(skip_bad)
    options = [("tokenizer", made.name), ("text_key", text_key), ("end_of_text", made.end_name),
               ("val_fraction", repr(val_fraction)), ("shard_tokens", str(shard_tokens))]
    try:
        units = list_units(inputs, text_key, max_inflated_bytes, skipped.add, warn, include, exclude)
        unread, is_new = list(skipped), not os.path.exists(output)
        _check_output(output, overwrite, made.vocabulary, shard_tokens)
        parts = _open_parts(output, _hash([hash64(made.text), options]), overwrite)
        job = _Job(tokenizer, end_of_text, val_fraction, parts, list(_name_parts(units)), skip_bad)
        bar = Progress(len(units), progress)
        results = _run(job, units, workers or os.cpu_count(), bar, skipped)
        bar.finish()
        counts = _count(results, unread, val_fraction, warn)
        if isinstance(counts, str):
            shutil.rmtree(parts)
            if is_new:
                os.rmdir(output)
            raise InputError(counts)
        _publish(ShardWriter(output, overwrite, made.vocabulary, shard_tokens), job, made, results, counts, options)
    except OSError as error:
        raise InputError(f"cannot pack into '{output}': {error}") from error
    return counts


def _count(results, unread, val_fraction, warn):
    """What was in the units, or what makes it no data set; tells what was skipped."""
    skipped = [*unread, *(message for result in results for message in result["skipped"])]
    for message in skipped:
        warn(f"skipped: {message}")
    counts = {name: sum(result[name] for result in results) for name in ("documents", "without_text", "bytes", "tokens")}
    problem = _find_problem(counts["documents"], sum(result["held_out"] for result in results), val_fraction)
    return problem or {**counts, "skipped": len(skipped)}


def _publish(writer, job, made, results, counts, options):
    if made.text:
        writer.set_tokenizer(made.text)
    _assemble(writer, job, made.dtype)
    digest = hash64(" ".join(str(result["digest"]) for result in results).encode())
    writer.finish(kind="text", tool=TOOL, end_of_text=made.end_of_text, options=options,
                  counts=[(name, counts[name]) for name in ("documents", "without_text", "bytes", "skipped")
                          if name != "skipped" or counts[name]], source_digest=digest)
    shutil.rmtree(job.parts)
