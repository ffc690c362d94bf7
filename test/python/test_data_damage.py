"""nsa.data on files that are damaged, hostile or huge: one error with the location, and --skip-bad goes on."""

import collections
import gzip
import json
import os
import pathlib
import random
import re
import signal
import resource
import struct
import subprocess
import sys

import numpy as np
import pytest

import nsa
import nsa.data
from conftest import SEED
from nsa.data import _documents, _pack, _sources, _tokenizer
from nsa.data.__main__ import main

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reliability"))
import damage  # noqa: E402
from texts import KINDS, LINES, TEXTS, arrow, zstd  # noqa: E402

pyarrow = pytest.importorskip("pyarrow")
zstandard = pytest.importorskip("zstandard")
tokenizers = pytest.importorskip("tokenizers")

FILES = 90


def read(path, skip=None, *others):
    return [text for unit in _sources.list_units([path, *others], "text", skip=skip) for text, _ in unit.texts(skip)]


@pytest.mark.parametrize("name", KINDS)
def test_damaged_file_is_one_error_that_names_it(tmp_path, name):
    make, is_checked = KINDS[name]
    good, path = make(), tmp_path / name
    path.write_bytes(good)
    beside = tmp_path / "beside.md"
    beside.write_text("beside")
    expected = read(path)
    assert "".join(expected) == "".join(TEXTS)
    rng, ends = random.Random(f"{SEED} {name}"), collections.Counter()
    for number in range(FILES):
        other, what = damage.damaged(good, rng)
        path.write_bytes(other)
        bad = []
        try:
            found = read(path)
            ends["read"] += 1
            assert found == expected or not is_checked, (number, what)
        except nsa.InputError as error:
            ends["refused"] += 1
            assert str(path) in str(error) and "\n" not in str(error), (number, what)
            # What is before the damage, and after a bad line, is read.
            *found, last = read(path, bad.append, beside)
            assert bad and last == "beside", (number, what)
        if is_checked:
            assert found == expected[:len(found)], (number, what)
    assert ends["refused"] > FILES / 3, ends


def test_truncated_file_is_refused_at_every_length(tmp_path):
    for name in ("a.jsonl.gz", "a.jsonl.zst", "unchecked.jsonl.zst", "stream.arrow", "file.arrow", "plain.parquet"):
        good = KINDS[name][0]()
        for size in sorted(random.Random(SEED).sample(range(len(good)), 40)) + [len(good) - 1]:
            (tmp_path / name).write_bytes(good[:size])
            with pytest.raises(nsa.InputError, match=re.escape(name)):
                read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.arrow", "a.parquet"])
def test_file_of_another_kind_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(LINES)
    with pytest.raises(nsa.InputError, match=re.escape(f"{name}' is ")):
        read(tmp_path / name)


@pytest.mark.parametrize("offset", [1 << 20, 1 << 30, -1, 5000])
def test_arrow_offsets_outside_of_the_buffer_are_refused(tmp_path, offset):
    good = arrow("stream")
    lengths = [len(text.encode()) for text in TEXTS[:50]]
    offsets = struct.pack("<51i", *np.cumsum([0, *lengths]))
    assert good.count(offsets) == 1
    end = good.index(offsets) + len(offsets)
    (tmp_path / "a.arrow").write_bytes(good[:end - 4] + struct.pack("<i", offset) + good[end:])
    with pytest.raises(nsa.InputError, match="a.arrow' is damaged: .*ffset"):
        read(tmp_path / "a.arrow")


def test_bombs_are_refused(tmp_path):
    zeros = b" " * (1 << 20) + b"\n"
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as file:
        for _ in range(64):
            file.write(zeros)
    (tmp_path / "b.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(zeros * 64))
    for name in ("a.jsonl.gz", "b.txt.zst"):
        with pytest.raises(nsa.InputError, match=rf"{name}' inflates to more than 1,000,000 bytes \(--max-inflated-bytes\)"):
            [unit] = _sources.list_units([tmp_path / name], "text", limit=10**6)
            list(unit.texts())
    import pyarrow.parquet
    same = pyarrow.array(["x" * 10**5] * 300)
    pyarrow.parquet.write_table(pyarrow.table({"text": same}), tmp_path / "c.parquet")
    assert (tmp_path / "c.parquet").stat().st_size < 10**5
    with pytest.raises(nsa.InputError, match="c.parquet' inflates to more than 1,000,000 bytes"):
        [unit] = _sources.list_units([tmp_path / "c.parquet"], "text", limit=10**6)
        list(unit.texts())


# Packing


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "a.jsonl").write_bytes(LINES)
    nsa.data.train_tokenizer(folder / "a.jsonl", folder / "tokenizer.json", vocabulary=300, progress=False)
    return folder / "tokenizer.json"


@pytest.mark.parametrize("workers", [1, 2])
def test_skip_bad_counts_names_and_goes_on(tmp_path, tokenizer, capsys, workers):
    good = LINES.splitlines(keepends=True)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"".join([*good[:20], b'{"text": "\\ud800"}\n', b"{\n", *good[20:]]))
    (tmp_path / "in/b.jsonl.zst").write_bytes(zstd()[:-20])
    (tmp_path / "in/c.parquet").write_bytes(b"PAR1")
    command = ["pack", str(tmp_path / "in"), "-o", str(tmp_path / "s"), "--tokenizer", str(tokenizer), "--val-fraction", "0.3",
               "--workers", str(workers)]
    for few in (0, 3):
        assert main([*command, "--skip-bad", str(few)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("nsa.data: error: ") and error.count("\n") == 1
        assert few == 0 or "one more than the 3 that --skip-bad leaves out" in error
    assert main([*command, "--skip-bad", "4"]) == 0
    printed = capsys.readouterr()
    assert "4 skipped" in printed.out
    lines = printed.err.splitlines()
    assert len(lines) == 4 and all(line.startswith("nsa.data: warning: skipped: ") for line in lines)
    for place in ("line 21 of '.*a.jsonl' has a lone surrogate", "line 22 of '.*a.jsonl' is no JSON", "b.jsonl.zst' is truncated",
                  "c.parquet' is no parquet file"):
        assert sum(bool(re.search(place, line)) for line in lines) == 1, place
    manifest = json.loads((tmp_path / "s/manifest.json").read_text())
    assert manifest["counts"]["skipped"] == 4 and manifest["counts"]["documents"] >= len(TEXTS)


def test_regex_of_a_tokenizer_that_fails_names_the_document(tmp_path, tokenizer, capfd):
    made = tokenizers.Tokenizer.from_file(str(tokenizer))
    pre = tokenizers.pre_tokenizers
    made.pre_tokenizer = pre.Sequence([pre.Split(tokenizers.Regex("(x+x+)+y"), "isolated"), pre.ByteLevel(add_prefix_space=False)])
    made.save(str(tmp_path / "t.json"))
    values = [*TEXTS[:9], "x" * 60, *TEXTS[9:]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in values))
    options = dict(tokenizer=tmp_path / "t.json", val_fraction=0.3, workers=1, progress=False)
    with pytest.raises(nsa.InputError, match="line 10 of '.*a.jsonl': the tokenizer fails: .*retry-limit") as error:
        nsa.data.pack(tmp_path / "a.jsonl", tmp_path / "s", **options)
    told = []
    counts = nsa.data.pack(tmp_path / "a.jsonl", tmp_path / "s", **options, skip_bad=1, warn=told.append)
    assert counts["documents"] == len(TEXTS) and told == [f"skipped: {error.value}"]
    assert capfd.readouterr().err == ""


def killed(job, number, unit):
    """Stands for a library that crashes on the second file."""
    if number == 1:
        open(job.part(number).file("train", "ids"), "w").close()
        os.kill(os.getpid(), signal.SIGSEGV)
    return _pack._tokenize(job, number, unit)


def test_process_that_crashes_is_an_error_and_loses_nothing(tmp_path, tokenizer, monkeypatch):
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / name).write_bytes(LINES)
    options = dict(tokenizer=tokenizer, val_fraction=0.3, workers=1, progress=False)
    nsa.data.pack(tmp_path / "a.jsonl", tmp_path / "one", **options)
    inputs, tokenize = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl")], _pack._tokenize
    monkeypatch.setattr(_pack, "_tokenize", killed)
    with pytest.raises(nsa.InputError, match=r"a process was killed, or crashed, while it read one of .*b.jsonl"):
        nsa.data.pack(inputs, tmp_path / "s", **{**options, "workers": 2})
    done = []
    monkeypatch.setattr(_pack, "_tokenize", lambda job, number, unit: done.append(number) or tokenize(job, number, unit))
    assert nsa.data.pack(inputs, tmp_path / "s", **options)["documents"] == 3 * len(TEXTS)
    assert 1 in done and set(done) <= {0, 1, 2}


def test_packing_without_a_bad_file_keeps_what_is_done_of_others(tmp_path, tokenizer, monkeypatch):
    for name, data in {"a.jsonl": LINES, "b.jsonl": b"{", "c.jsonl": LINES}.items():
        (tmp_path / name).write_bytes(data)
    options = dict(tokenizer=tokenizer, val_fraction=0.3, workers=1, progress=False)
    names = [tmp_path / name for name in ("a.jsonl", "a.jsonl", "b.jsonl", "c.jsonl")]
    with pytest.raises(nsa.InputError, match="b.jsonl' is no JSON"):
        nsa.data.pack(names, tmp_path / "s", **options)
    done, tokenize = [], _pack._tokenize
    monkeypatch.setattr(_pack, "_tokenize", lambda job, number, unit: done.extend(unit.paths) or tokenize(job, number, unit))
    assert nsa.data.pack(names[1:2] + names[3:], tmp_path / "s", **options)["documents"] == 2 * len(TEXTS)
    assert done == [str(names[3])]


@pytest.mark.parametrize("wrong,message", [
    (dict(inputs=3), "inputs is 3, expected a path, or a list of paths"),
    (dict(output=None), "output is None, expected a path"),
    (dict(val_fraction="1"), r"val_fraction is '1', expected a number in \[0, 1\)"),
    (dict(workers=0), "workers is 0, expected an integer from 1 on"),
    (dict(skip_bad=-1), "skip_bad is -1, expected an integer from 0 on"),
    (dict(max_inflated_bytes=1.5), "max_inflated_bytes is 1.5, expected an integer from 0 on"),
])
def test_pack_wrong_arguments_are_errors(tmp_path, tokenizer, wrong, message):
    with pytest.raises(nsa.InputError, match=message):
        nsa.data.pack(**{"inputs": tmp_path, "output": tmp_path / "s", "tokenizer": tokenizer, **wrong})


def test_training_on_a_damaged_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES)[:-9])
    with pytest.raises(nsa.InputError, match="a.jsonl.gz' is truncated"):
        nsa.data.train_tokenizer(tmp_path, tmp_path / "t.json", progress=False)


# Long documents


def trained(model, trainer, pre, decoder, normalizer=None, **options):
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer, made.decoder = pre, decoder
    made.train_from_iterator(TEXTS, trainer(show_progress=False, special_tokens=["</s>", "<unk>"], **options))
    if normalizer:
        made.normalizer = normalizer
    return made


def family(name):
    """Tokenizers as those of models are."""
    pre, decode, models, normal = (tokenizers.pre_tokenizers, tokenizers.decoders, tokenizers.models, tokenizers.normalizers)
    bytes_of = dict(vocab_size=400, initial_alphabet=pre.ByteLevel.alphabet())
    split = pre.Split(tokenizers.Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
                      "isolated")
    bpe, byte_level = tokenizers.trainers.BpeTrainer, decode.ByteLevel()
    if name == "llama2":
        made = trained(models.BPE(byte_fallback=True), bpe, pre.Metaspace(), decode.Metaspace(), vocab_size=400,
                       initial_alphabet=[f"{n:c}" for n in range(32, 127)])
        made.pre_tokenizer = None
        made.normalizer = normal.Sequence([normal.Prepend("\u2581"), normal.Replace(" ", "\u2581")])
        return made
    return {
        "gpt2": lambda: trained(models.BPE(), bpe, pre.ByteLevel(add_prefix_space=False), byte_level, **bytes_of),
        "prefix": lambda: trained(models.BPE(), bpe, pre.ByteLevel(add_prefix_space=True), byte_level, **bytes_of),
        "llama3": lambda: trained(models.BPE(), bpe, pre.Sequence([split, pre.ByteLevel(add_prefix_space=False, use_regex=False)]),
                                  byte_level, **bytes_of),
        "lower": lambda: trained(models.BPE(), bpe, pre.ByteLevel(add_prefix_space=False), byte_level,
                                 normal.Sequence([normal.NFC(), normal.Lowercase()]), **bytes_of),
        "unigram": lambda: trained(models.Unigram(), tokenizers.trainers.UnigramTrainer, pre.Metaspace(), decode.Metaspace(),
                                   vocab_size=300, unk_token="<unk>"),
    }[name]()


FAMILIES = ["gpt2", "prefix", "llama3", "lower", "unigram", "llama2"]


@pytest.mark.parametrize("name", FAMILIES)
def test_pieces_have_the_ids_of_the_whole(tmp_path, monkeypatch, name):
    family(name).save(str(tmp_path / "t.json"))
    made = _tokenizer.Tokenizer(tmp_path / "t.json")
    monkeypatch.setattr(_tokenizer, "PIECE", 300)
    rng = random.Random(SEED)
    parts = ["  ", "\n", "\n\n", "\t", "a", "b1", "12,", "é", "e\u0301", "世界。", "。\n", " x", " Fox", "the", " the", "...", "1234"]
    texts = ["".join(rng.choice(parts) for _ in range(3000)) for _ in range(3)]
    texts += [" ".join(rng.choice(["fox", "Jumps", "12", "é,", "the"]) for _ in range(2000)), "x" * 3000, "世" * 3000, ""]
    assert len(list(made._pieces(texts))) > 4 * len(texts)
    for text, row in zip(texts, made.encode(texts), strict=True):
        np.testing.assert_array_equal(row, made.encoder.encode(text, add_special_tokens=False).ids)


def test_packing_says_that_the_tokenizer_changes_text(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    for name, says in (("lower", True), ("prefix", False)):
        family(name).save(str(tmp_path / "t.json"))
        assert main(["pack", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / name), "--tokenizer", str(tmp_path / "t.json"),
                     "--val-fraction", "0.3"]) == 0
        assert ("bits per byte will be of text as the tokenizer changes it: NFC, Lowercase" in capsys.readouterr().out) == says


def test_long_document_takes_few_bytes_of_memory_for_each_of_its_own(tmp_path, tokenizer):
    """In a process of its own, whose largest size is measured."""
    size = 5 << 20
    text = " ".join(TEXTS).encode()
    (tmp_path / "a.txt").write_bytes((text * (size // len(text) + 1))[:size].decode(errors="ignore").encode())
    (tmp_path / "b.txt").write_text("few words")
    program = ("import resource, sys; from nsa.data import pack; import pyarrow, tokenizers\n"
               "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10\n"
               "pack([sys.argv[2]], sys.argv[4], tokenizer=sys.argv[3], workers=1, val_fraction=0); begin = used()\n"
               "pack([sys.argv[1]], sys.argv[5], tokenizer=sys.argv[3], workers=1, val_fraction=0); print(used() - begin)\n")
    done = subprocess.run([sys.executable, "-c", program, *map(str, (tmp_path / "a.txt", tmp_path / "b.txt", tokenizer,
                                                                     tmp_path / "s", tmp_path / "t"))],
                          text=True, capture_output=True, env={**os.environ, "PYTHONPATH": os.path.dirname(nsa.__path__[0])})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10 * size
