"""Text to token shards, on many processes."""

import array
import dataclasses
import json
import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from nsa._runtime import InputError, ShardWriter, hash64
from nsa.data._progress import Progress
from nsa.data._shards import SHARD_TOKENS, TOOL
from nsa.data._sources import Unit, list_units
from nsa.data._tokenizer import Tokenizer

SPLITS = ("train", "val")
# Below the output folder: what is done of a data set that is not complete.
PARTS = ".nsa-data.parts"
# Characters that are tokenized at once: a token takes some hundred bytes meanwhile.
BATCH = 1 << 20


@dataclasses.dataclass
class _Job:
    """What a process needs to know."""

    tokenizer: str
    end_of_text: str | None
    val_fraction: float
    parts: str


_tokenizer = None


def _start(job):
    """Makes a process ready: it uses one core."""
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = Tokenizer(job.tokenizer, job.end_of_text)


class _Part:
    """The files of a unit that is done. The last one that is written says so."""

    def __init__(self, folder, number):
        self.path = os.path.join(folder, f"{number:06}")

    def file(self, split, kind):
        return f"{self.path}.{split}.{kind}"

    def result(self):
        """What it says, or None."""
        try:
            with open(f"{self.path}.json") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def write_result(self, result):
        _write_json(f"{self.path}.json", result)


def _write_json(path, value):
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        json.dump(value, file)
    os.replace(temporary, path)


def _tokenize(job, number, unit):
    """Writes the tokens of a unit, by split, and returns what was in it."""
    part = _Part(job.parts, number)
    ids = {split: open(part.file(split, "ids"), "wb") for split in SPLITS}
    lengths = {split: array.array("Q") for split in SPLITS}
    counts = {"documents": 0, "held_out": 0, "without_text": 0, "bytes": 0, "tokens": 0}
    digest, end = [], np.array([_tokenizer.end_of_text], _tokenizer.dtype)
    for batch in _batches(unit.texts(), counts):
        for text, row in zip(batch, _tokenizer.encode(batch)):
            data = text.encode()
            value = hash64(data)
            split = "val" if value < job.val_fraction * 2**64 else "train"
            ids[split].write(row.tobytes() + end.tobytes())
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
    result = {**counts, "digest": hash64("".join(digest).encode())}
    part.write_result(result)
    return result


def _batches(texts, counts):
    """Texts together, up to BATCH characters; those without text are counted."""
    batch, size = [], 0
    for text in texts:
        if not text:
            counts["without_text"] += 1
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"a document has a surrogate, which is no text: {error}") from error
        batch.append(text)
        size += len(text)
        if size >= BATCH or len(batch) >= 1024:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _plan(units, tokenizer, options):
    """What the parts belong to: another input, or other options, are another plan."""
    def describe(unit):
        return [unit.kind, unit.key, unit.begin, unit.end,
                [[os.path.abspath(path), os.path.getsize(path), os.stat(path).st_mtime_ns] for path in unit.paths]]

    text = json.dumps([hash64(tokenizer.text), options, [describe(unit) for unit in units]])
    return f"{hash64(text.encode()):016x}"


def _check_output(*arguments):
    """What lies in the folder, or a wrong option, is an error now and not after hours."""
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
            raise InputError(f"'{folder}' has parts of another packing that was interrupted: other files, options or "
                             "tokenizer (--overwrite discards them)")
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    if found != plan:
        _write_json(os.path.join(folder, "plan.json"), {"plan": plan})
    return folder


def _run(job, units, workers, progress):
    """Tokenizes what is not done yet. Returns the results in order."""
    results = [_Part(job.parts, number).result() for number in range(len(units))]
    left = [number for number, result in enumerate(results) if result is None]

    def note():
        done = [result for result in results if result is not None]
        progress.update(len(done), sum(result["tokens"] for result in done))

    note()
    if workers == 1 or len(left) <= 1:
        for number in left:
            if number == left[0]:
                _start(job)
            results[number] = _tokenize(job, number, units[number])
            note()
        return results
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(left)), context, _start, (job,)) as pool:
        futures = {pool.submit(_tokenize, job, number, units[number]): number for number in left}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                note()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return results


def _assemble(writer, parts, count, dtype):
    """Hands the parts to the writer of the shards, in order, some megabytes at a time."""
    for number in range(count):
        part = _Part(parts, number)
        for split in SPLITS:
            lengths = np.fromfile(part.file(split, "lengths"), np.uint64)
            with open(part.file(split, "ids"), "rb") as file:
                for group in np.array_split(lengths, max(1, int(lengths.sum()) >> 22)):
                    ids = np.fromfile(file, dtype, int(group.sum()))
                    if len(ids) != int(group.sum()):
                        raise InputError(f"'{part.file(split, 'ids')}' is truncated: remove '{parts}' and pack again")
                    if len(ids):
                        writer.append(split, ids, group)


def _find_problem(documents, held_out, val_fraction):
    """What makes the documents no data set, or None."""
    if documents == 0:
        return "there is no text: every document is empty, binary or missing"
    if documents == held_out:
        return f"all {documents} documents are in the validation split: there are too few"
    if held_out == 0 and val_fraction > 0:
        return f"none of the {documents} documents is in the validation split: there are too few for a share of {val_fraction}"
    return None


def pack(inputs, output, *, tokenizer, text_key="text", end_of_text=None, val_fraction=0.01, workers=None,
         shard_tokens=SHARD_TOKENS, overwrite=False, progress=True):
    """Tokenizes text into a data set for nsa-train.

    inputs        files and folders: parquet, JSON lines (.jsonl, .ndjson, also .gz and .zst), Arrow files as the library
                  datasets saves them, and any other file as one document of UTF-8 text
    output        folder of the data set
    tokenizer     path of a tokenizer.json of the tokenizers library
    text_key      column of tables and name in JSON lines that holds the text
    end_of_text   the token that ends each document; by default the first of <|endoftext|>, <|end_of_text|>, <|eot_id|>,
                  </s>, <eos> that the tokenizer has
    val_fraction  share of the documents in the validation split, chosen by their hash
    workers       processes; by default one for each core
    overwrite     replaces the data set in the folder

    A packing that was interrupted goes on where it was when it is started again with the same arguments. Returns counts:
    documents, without_text, bytes, tokens.
    """
    if not 0 <= val_fraction < 1:
        raise InputError(f"the validation fraction must be in [0, 1), not {val_fraction}")
    inputs, output = [os.fspath(path) for path in inputs], os.fspath(output)
    made = Tokenizer(os.fspath(tokenizer), end_of_text)
    units = list_units(inputs, text_key)
    options = [("tokenizer", made.name), ("text_key", text_key), ("end_of_text", made.encoder.id_to_token(made.end_of_text)),
               ("val_fraction", repr(float(val_fraction))), ("shard_tokens", str(shard_tokens))]
    is_new = not os.path.exists(output)
    _check_output(output, overwrite, made.vocabulary, shard_tokens)
    parts = _open_parts(output, _plan(units, made, options), overwrite)
    job = _Job(os.fspath(tokenizer), end_of_text, val_fraction, parts)
    bar = Progress(len(units), progress)
    results = _run(job, units, workers or os.cpu_count(), bar)
    bar.finish()
    counts = {name: sum(result[name] for result in results) for name in ("documents", "without_text", "bytes", "tokens")}
    problem = _find_problem(counts["documents"], sum(result["held_out"] for result in results), val_fraction)
    if problem:
        shutil.rmtree(parts)
        if is_new:
            os.rmdir(output)
        raise InputError(problem)
    writer = ShardWriter(output, overwrite, made.vocabulary, shard_tokens)
    writer.set_tokenizer(made.text)
    _assemble(writer, parts, len(units), made.dtype)
    digest = hash64(" ".join(str(result["digest"]) for result in results).encode())
    writer.finish(kind="text", tool=TOOL, end_of_text=made.end_of_text, options=options,
                  counts=[(name, counts[name]) for name in ("documents", "without_text", "bytes")], source_digest=digest)
    shutil.rmtree(parts)
    return counts
