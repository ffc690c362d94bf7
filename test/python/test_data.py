"""nsa.data: data sets from ids, and from text where the libraries that read it are installed."""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import nsa
import nsa.data
from nsa.data import _pack, _sources, _tokenizer
from nsa.data.__main__ import main
from programs import BIN, run_programs

TEXTS = ["The quick brown fox.", "jumps\nover", "  the lazy dog's 1234 bones ", "Grüße, 世界! <|endoftext|> é", "x" * 500,
         "\t\tif (a[i] != 0)\n\n\treturn;"] * 3

needs_tokenizers = pytest.mark.skipif(not importlib.util.find_spec("tokenizers"), reason="tokenizers is not installed")
needs_pyarrow = pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="pyarrow is not installed")
needs_zstandard = pytest.mark.skipif(not importlib.util.find_spec("zstandard"), reason="zstandard is not installed")


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


# Ids


@pytest.mark.parametrize("vocabulary,width", [(50257, 2), (65536, 2), (65537, 4), (1 << 20, 4)])
def test_write_shards_ids_read_back_in_their_width(tmp_path, rng, vocabulary, width):
    documents = [rng.integers(0, vocabulary, n) for n in (5, 1, 300)] + [[vocabulary - 1, 0]]
    nsa.data.write_shards(tmp_path / "s", documents, documents[:1], vocabulary=vocabulary, end_of_text=3, shard_tokens=100)
    shards = nsa.data.Shards(str(tmp_path / "s"))
    assert (shards.vocabulary, shards.end_of_text, shards.kind, shards.tokenizer) == (vocabulary, 3, "tokens", b"")
    np.testing.assert_array_equal(shards.read("train", 0, 308), np.concatenate(documents))
    np.testing.assert_array_equal(shards.documents("train"), [0, 5, 6, 306])
    np.testing.assert_array_equal(shards.documents("val"), [0])
    assert shards.size("val") == 5
    assert (tmp_path / "s/train_000003.bin").stat().st_size == 1024 + 8 * width
    shards.verify()


@pytest.mark.parametrize("wrong,message", [
    (dict(train=[[1, 2], [7, 10]]), "document 1 of the split 'train': id 10 at position 1 is not in 0..9, the vocabulary has 10"),
    (dict(train=[[-1]]), "id -1 at position 0"),
    (dict(train=[[0.5]]), "must be a row of integers, not float64"),
    (dict(train=[[1, [2]]]), "document 0 of the split 'train' must be a row of integers"),
    (dict(train=["ab"]), "must be a row of integers, not <U2"),
    (dict(train=[None]), "must be a row of integers, not object"),
    (dict(train=5), "the split 'train' must be rows of integers"),
    (dict(train=[[1]], val=5), "the split 'val' must be rows of integers"),
    (dict(train=[[1]], vocabulary=None), "vocabulary is None, expected an integer from 0 on"),
    (dict(train=[[1]], vocabulary=2.5), "vocabulary is 2.5, expected an integer from 0 on"),
    (dict(train=[[1]], vocabulary=-1), "vocabulary is -1, expected an integer from 0 on"),
    (dict(train=[[1]], end_of_text=10), "end_of_text is 10, expected an integer from -1 to 9"),
    (dict(train=[[1]], end_of_text="</s>"), "end_of_text is '</s>', expected an integer from -1 on"),
    (dict(train=[[1]], tokenizer=3), "tokenizer is 3, expected a path"),
    (dict(train=[[1]], shard_tokens=1e6), "shard_tokens is 1000000.0, expected an integer from 0 on"),
    (dict(train=[[1]], overwrite="no"), "overwrite is 'no', expected True or False"),
    (dict(train=[[1]], output=None), "output is None, expected a path"),
    (dict(train=[[1]], output="a\0b"), r"output is 'a\x00b', expected a path"),
    (dict(train=[]), "no tokens for the training split"),
    (dict(train=[[1]], vocabulary=(1 << 20) + 1), "a vocabulary has 1 to 1048576 tokens, not 1048577"),
    (dict(train=[[1]], tokenizer="nowhere.json"), "cannot read the tokenizer 'nowhere.json'"),
    (dict(train=[[1]], shard_tokens=0), "a shard holds 1 to 2147483647 tokens, not 0"),
])
def test_write_shards_wrong_input_is_an_error_and_writes_nothing(tmp_path, wrong, message):
    with pytest.raises(nsa.InputError, match=re.escape(message)):
        nsa.data.write_shards(**{"output": tmp_path / "s", "vocabulary": 10, **wrong})
    assert not (tmp_path / "s").exists()


CHARACTERS = """model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16, vocab_size: 65}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 2, w: 16}
data: {tokenizer: shards}
train: {steps: 3, seq_len: 32, batch_size: 2, micro_batch: 2, warmup_steps: 0, final_eval_batches: 1}
"""


def test_write_shards_65_characters_train_and_generate(tmp_path, rng):
    nsa.data.write_shards(tmp_path / "data", [rng.integers(0, 65, 4000)], [rng.integers(0, 65, 500)], vocabulary=65)
    (tmp_path / "small.yaml").write_text(CHARACTERS)
    train = ["--data", "data", "--out-dir", "runs", "--run-name"]
    run_programs(tmp_path, ["nsa-train", "small.yaml", *train, "compiled"],
                 ["nsa-model", "small.yaml", "-o", "small.mlir"], ["nsa-compile", "small.mlir", "-o", "small.nsax"],
                 ["nsa-train", "small.nsax", "--config", "small.yaml", *train, "given"])
    weights = [(tmp_path / f"runs/{run}/checkpoints/step-00000003/model.safetensors").read_bytes() for run in ("compiled", "given")]
    assert weights[0] == weights[1]
    done = subprocess.run([BIN / "nsa-generate", "runs/given", "--ids", "--prompt", "1,64", "--tokens", "20", "--temperature", "0"],
                          cwd=tmp_path, check=True, capture_output=True, text=True)
    ids = [int(token) for token in done.stdout.split(",")]
    assert len(ids) == 20 and ids == nsa.Model(tmp_path / "runs/given").generate([1, 64], tokens=20, temperature=0)


def test_write_shards_overwrite_keeps_nothing_of_the_old(tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    nsa.data.write_shards(tmp_path / "s", [[1, 2]], [[3]], vocabulary=10, tokenizer=tokenizer)
    assert nsa.data.Shards(str(tmp_path / "s")).tokenizer == b"{}"
    with pytest.raises(nsa.InputError, match="already holds 'manifest.json'"):
        nsa.data.write_shards(tmp_path / "s", [[1, 2]], vocabulary=10)
    nsa.data.write_shards(tmp_path / "s", [[4]], vocabulary=10, overwrite=True)
    assert sorted(os.listdir(tmp_path / "s")) == ["manifest.json", "train_000000.bin", "train_documents.idx", "val_documents.idx"]


def test_shards_damaged_files_are_errors(tmp_path):
    nsa.data.write_shards(tmp_path / "s", [[1, 2], [3]], vocabulary=10)
    shards = nsa.data.Shards(str(tmp_path / "s"))
    index = tmp_path / "s/train_documents.idx"
    good = index.read_bytes()
    for bad, message in ((good[:-1], "has 1039 bytes, an index of 2 documents 1040"), (b"x" + good[1:], "is not an index of 2 documents"),
                         (good[:-1] + b"x", "its manifest says")):
        index.write_bytes(bad)
        with pytest.raises(nsa.InputError, match=message):
            shards.documents("train")
        with pytest.raises(nsa.InputError, match=message):
            shards.verify()
    with pytest.raises(nsa.InputError, match="a split is 'train' or 'val', not 'test'"):
        shards.read("test", 0, 1)
    with pytest.raises(nsa.InputError, match="tokens 2 to 4 of the split 'train', which has 3"):
        shards.read("train", 2, 2)


def test_shards_read_any_integers_and_no_end_wraps(tmp_path):
    nsa.data.write_shards(tmp_path / "s", [[1, 2], [3]], vocabulary=10)
    shards = nsa.data.Shards(tmp_path / "s")
    assert list(shards.read("train", np.int64(1), 2)) == [2, 3]
    for position, count, message in ((-1, 1, "position is -1, expected an integer from 0 on"),
                                     (2**64 - 1, 2**64 - 1, "of the split 'train', which has 3")):
        with pytest.raises(nsa.InputError, match=message):
            shards.read("train", position, count)


# Sources


def texts(*paths, key="text"):
    return [text for unit in _sources.list_units(paths, key) for text, _ in unit.texts()]


def write_lines(path, values, key="text", opened=open):
    with opened(path, "wb") as file:
        for value in values:
            file.write(json.dumps({key: value}).encode() + b"\n\n")


def test_sources_lines_are_read_once_wherever_units_begin(tmp_path, monkeypatch):
    write_lines(tmp_path / "a.jsonl", TEXTS)
    write_lines(tmp_path / "b.jsonl.gz", TEXTS, opened=gzip.open)
    whole = texts(tmp_path)
    assert whole == TEXTS + TEXTS
    for size in (1, 7, 100, 333):
        monkeypatch.setattr(_sources, "UNIT_BYTES", size)
        assert texts(tmp_path / "a.jsonl") == TEXTS, size


@pytest.mark.parametrize("name,content,expected", [
    ("a.json", '{"text": "a", "n": 1}\n\n{"text": "b"}\n', ["a", "b"]),
    ("a.JSON", '{"text": "a"}', ["a"]),
    ("a.json", '[{"text": "a"},\n {"text": "b"}]', ["a", "b"]),
    ("a.json", '{\n "text": "a"\n}\n', ['{\n "text": "a"\n}\n']),
    ("a.json", '{"name": "a"}', ['{"name": "a"}']),
    ("a.json", "[1, 2]", ["[1, 2]"]),
    ("A.JSONL.GZ", '{"text": "a"}\n', ["a"]),
    ("a.Json.Gz", '{"text": "a"}\n{"text": "b"}', ["a", "b"]),
    ("A.TXT.GZ", "a", ["a"]),
])
def test_sources_json_is_what_its_contents_are_whatever_the_case(tmp_path, name, content, expected):
    with (gzip.open if name.lower().endswith(".gz") else open)(tmp_path / name, "wt") as file:
        file.write(content)
    assert texts(tmp_path) == expected


def test_sources_hub_links_are_followed_and_others_named(tmp_path):
    repository = tmp_path / "hub/datasets--a--b"
    for folder in ("blobs", "refs", "snapshots/0f/data"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs/main").write_text("0f")
    write_lines(repository / "blobs/9c", TEXTS)
    link = repository / "snapshots/0f/data/a.jsonl"
    link.symlink_to("../../../blobs/9c")
    for root in (tmp_path / "hub", repository, repository / "snapshots/0f", link):
        assert texts(root) == TEXTS, root
    # Older versions of the library put such links into folders of the user.
    (tmp_path / "local").mkdir()
    (tmp_path / "local/b.jsonl").symlink_to(repository / "blobs/9c")
    assert texts(tmp_path / "local") == TEXTS
    (tmp_path / "local/c.jsonl").symlink_to(tmp_path / "d.jsonl")
    (tmp_path / "local/e").symlink_to(tmp_path)
    told = []
    _sources.list_units([tmp_path / "local"], "text", warn=told.append)
    assert told == [f"symbolic links not followed: 2, the first is '{tmp_path / 'local/e'}' (give what it stands for by its name)"]
    (repository / "snapshots/10").mkdir()
    with pytest.raises(nsa.InputError, match="has 2 snapshots of one data set: give one of them by its name"):
        texts(repository)
    (repository / "blobs/9c").unlink()
    with pytest.raises(nsa.InputError, match="a.jsonl' is a link to '.*/9c', which is not there: the download is not complete"):
        texts(repository / "snapshots/0f")


@needs_zstandard
def test_sources_zstd_frames_are_read_to_the_end(tmp_path):
    import zstandard
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]
    frames = [zstandard.ZstdCompressor().compress(b"".join(part)) for part in (lines[:5], lines[5:])]
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(frames))
    assert texts(tmp_path) == TEXTS


def test_sources_folders_give_text_files_and_skip_hidden_ones(tmp_path):
    for name, data in {"b.txt": b"bb", "a/c.md": "ü".encode(), ".git/x": b"no", "z": b"\xff", "y": b"a\0b"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert texts(tmp_path) == ["bb", None, None, "ü"]


@needs_pyarrow
def test_sources_tables_give_their_column(tmp_path, monkeypatch):
    import pyarrow
    import pyarrow.parquet
    table = pyarrow.table({"id": range(19), "body": [*TEXTS, None]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    folder = tmp_path / "hf/train"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    (tmp_path / "hf/dataset_dict.json").write_text("{}")
    for name, opened in (("data-00000-of-00002.arrow", pyarrow.ipc.new_stream), ("data-00001-of-00002.arrow", pyarrow.ipc.new_file)):
        with pyarrow.OSFile(str(folder / name), "wb") as file, opened(file, table.schema) as writer:
            writer.write_table(table)
    monkeypatch.setattr(_sources, "UNIT_BYTES", 1)
    assert len(_sources.list_units([tmp_path / "t.parquet"], "body")) == 5
    assert texts(tmp_path / "t.parquet", key="body") == [*TEXTS, None]
    assert texts(tmp_path / "hf", key="body") == [*TEXTS, None] * 2
    with pytest.raises(nsa.InputError, match=r"has no column 'text': its columns are id, body \(--text-key names one\)"):
        texts(tmp_path / "t.parquet")
    with pytest.raises(nsa.InputError, match="column 'id' of .* holds int64, not text"):
        texts(tmp_path / "hf", key="id")
    pyarrow.parquet.write_table(table.slice(0, 0), tmp_path / "t.parquet")
    with pytest.raises(nsa.InputError, match="none of the 1 files has a document in"):
        texts(tmp_path / "t.parquet", key="body")
    assert texts(tmp_path / "t.parquet", tmp_path / "hf", key="body") == [*TEXTS, None] * 2
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(nsa.InputError, match="is no parquet file"):
        texts(tmp_path / "t.parquet", key="body")


@pytest.mark.parametrize("line,message", [
    (b'{"body": "a"}', "line 2 of '.*' has no 'text': it has body"),
    (b'{"text": 3}', "'text' in line 2 of '.*' is no text but int"),
    (b"[1]", "line 2 of '.*' has no 'text': it has list"),
    (b'{"text": ', "line 2 of '.*' is no JSON"),
    (b'{"text": "a\\ud800b"}', "line 2 of '.*' has a lone surrogate at character 1"),
    (b'{"text": ' + b"[" * 100_000, "line 2 of '.*' is no JSON"),
    (b'{"text": "\xff"}', "line 2 of '.*' is no JSON"),
])
def test_sources_wrong_lines_are_errors(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n' + line + b"\n")
    with pytest.raises(nsa.InputError, match=message):
        texts(tmp_path)


def test_sources_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(nsa.InputError, match="there are no files to pack in"):
        texts(tmp_path)
    with pytest.raises(nsa.InputError, match="there is no file or folder"):
        texts(tmp_path / "nowhere")


def test_missing_library_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    write_lines(tmp_path / "a.jsonl", TEXTS)
    with pytest.raises(nsa.InputError, match="needs the Python package tokenizers, which is not installed"):
        nsa.data.pack([tmp_path], tmp_path / "s", tokenizer=tmp_path / "t.json")


# Packing


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A BPE of few tokens."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_lines(folder / "a.jsonl", TEXTS)
    made = nsa.data.train_tokenizer([folder / "a.jsonl"], folder / "tokenizer.json", vocabulary=300, progress=False)
    assert made == 300
    return folder / "tokenizer.json"


@needs_tokenizers
@pytest.mark.parametrize("workers", [1, 2])
def test_pack_agrees_with_the_library(tmp_path, tokenizer, monkeypatch, workers):
    import tokenizers
    write_lines(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "b.txt").write_text("abc def " * 50)
    if workers == 1:
        # Documents in pieces, and batches of few.
        monkeypatch.setattr(_tokenizer, "PIECE", 40)
        monkeypatch.setattr(_pack, "BATCH", 30)
    counts = nsa.data.pack([tmp_path / "a.jsonl", tmp_path / "b.txt"], tmp_path / "s", tokenizer=tokenizer, val_fraction=0.3,
                           workers=workers, progress=False)
    shards = nsa.data.Shards(str(tmp_path / "s"))
    assert shards.tokenizer == tokenizer.read_bytes() and shards.vocabulary == 300
    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    library.encode_special_tokens = True
    expected = {"train": [], "val": []}
    for text in [*TEXTS, "abc def " * 50]:
        split = "val" if nsa._runtime.hash64(text.encode()) < 0.3 * 2**64 else "train"
        expected[split].append([*library.encode(text, add_special_tokens=False).ids, shards.end_of_text])
    assert expected["val"] and expected["train"]
    for split, documents in expected.items():
        np.testing.assert_array_equal(shards.read(split, 0, shards.size(split)), np.concatenate(documents))
        np.testing.assert_array_equal(shards.documents(split), np.cumsum([0, *map(len, documents)])[:-1])
    assert counts["tokens"] == sum(map(len, expected["train"] + expected["val"]))
    shards.verify()
    assert not (tmp_path / "s" / _pack.PARTS).exists()


@needs_tokenizers
def test_pack_interrupted_goes_on_and_gives_the_same_files(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(_sources, "UNIT_BYTES", 200)
    write_lines(tmp_path / "a.jsonl", TEXTS)
    arguments = dict(tokenizer=tokenizer, workers=1, progress=False, val_fraction=0.3)
    nsa.data.pack([tmp_path / "a.jsonl"], tmp_path / "whole", **arguments)
    done, tokenize = [], _pack._tokenize

    def interrupted(job, number, unit):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(number)
        return tokenize(job, number, unit)

    monkeypatch.setattr(_pack, "_tokenize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nsa.data.pack([tmp_path / "a.jsonl"], tmp_path / "s", **arguments)
    with pytest.raises(nsa.InputError, match="parts of another packing"):
        nsa.data.pack([tmp_path / "a.jsonl"], tmp_path / "s", **{**arguments, "val_fraction": 0.5})
    monkeypatch.setattr(_pack, "_tokenize", lambda job, number, unit: done.append(number) or tokenize(job, number, unit))
    nsa.data.pack([tmp_path / "a.jsonl"], tmp_path / "s", **arguments)
    assert done == list(range(len(_sources.list_units([tmp_path / "a.jsonl"], "text"))))
    for name in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "s" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@needs_tokenizers
@pytest.mark.parametrize("wrong,message", [
    (dict(end_of_text="<eot>"), "has no token <eot> to end documents"),
    (dict(tokenizer="a.jsonl"), "'a.jsonl' is no tokenizer.json of the tokenizers library"),
    (dict(tokenizer="nowhere"), "cannot read the tokenizer 'nowhere'"),
    (dict(val_fraction=1), r"val_fraction is 1, expected a number in \[0, 1\)"),
    (dict(text_key="body"), "has no 'body': it has text"),
    (dict(inputs=["empty.txt"]), "there is no text: every document is empty"),
    (dict(val_fraction=1e-9), "none of the 18 documents is in the validation split: a larger --val-fraction than 1e-09 takes some"),
    (dict(val_fraction=0.999999), "all 18 documents are in the validation split: a smaller --val-fraction than 0.999999"),
])
def test_pack_wrong_input_is_an_error(tmp_path, tokenizer, monkeypatch, wrong, message):
    monkeypatch.chdir(tmp_path)
    write_lines("a.jsonl", TEXTS)
    open("empty.txt", "w").close()
    with pytest.raises(nsa.InputError, match=message):
        nsa.data.pack(**{"inputs": ["a.jsonl"], "output": "s", "tokenizer": tokenizer, "workers": 1, "progress": False,
                         "val_fraction": 0.3, **wrong})
    assert not os.path.exists("s/manifest.json")


def test_pack_of_bytes_makes_the_shards_of_nsa_data(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for number in range(20):
        (tmp_path / f"in/{number:02}.txt").write_text(f"text {number} é")
    run_programs(tmp_path, ["nsa-data", "pack", "in", "-o", "plain", "--val-fraction", "0.3"])
    (tmp_path / "in/07.txt.gz").write_bytes(gzip.compress((tmp_path / "in/07.txt").read_bytes()))
    (tmp_path / "in/07.txt").unlink()
    (tmp_path / "in/other.log").write_text("not wanted")
    command = ["pack", str(tmp_path / "in"), "-o", str(tmp_path / "s"), "--tokenizer", "byte", "--val-fraction", "0.3"]
    assert main([*command, "--exclude", "*.log", "--include", "*/in/*.txt*"]) == 0
    for name in ("train_000000.bin", "val_000000.bin"):
        assert (tmp_path / "s" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert "tokenizer" not in manifest(tmp_path / "s")
    write_lines(tmp_path / "in/nul.jsonl", ["a\0b"])
    assert main([*command, "--overwrite", "--end-of-text", "x"]) == 1
    assert main([*command, "--overwrite"]) == 1
    error = capsys.readouterr().err
    assert "byte 0 ends documents of bytes, not 'x'" in error and "character 1 is NUL" in error


@needs_tokenizers
def test_command_line_packs_and_names_errors(tmp_path, tokenizer, capsys):
    write_lines(tmp_path / "a.jsonl", TEXTS)
    command = ["pack", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "s"), "--tokenizer", str(tokenizer), "--val-fraction", "0.3"]
    assert main(command) == 0
    assert "18 documents, 0 without text" in capsys.readouterr().out
    assert main(command) == 1
    assert "nsa.data: error: '" in capsys.readouterr().err
    info = subprocess.run([BIN / "nsa-data", "info", tmp_path / "s"],
                          text=True, capture_output=True, check=True).stdout
    assert "kind   text, vocabulary 300" in info and "hashes verified" in info
    assert manifest(tmp_path / "s")["format"] == 3
