"""Broken files for the tools that need no compiler: artefacts, arrays, shards, manifests,
texts and checkpoints. Each case breaks one thing of files that work."""

import json
import struct

SHARD_HEADER = 1024


def u32(value):
    return struct.pack("<I", value)


def patch(data, at, by):
    return data[:at] + by + data[at + len(by):]


# (name, change of the bytes, expected message)
ARTEFACTS = [
    ("empty", lambda d: b"", "0 bytes are fewer than the header's 32"),
    ("half a header", lambda d: d[:16], "16 bytes are fewer than the header's 32"),
    ("a header alone", lambda d: d[:32], "found 0 bytes"),
    ("another magic", lambda d: b"X" + d[1:], "it does not begin with NSAXFILE"),
    ("a text", lambda d: b"module {\n}\n" * 9, "it does not begin with NSAXFILE"),
    ("an ELF object", lambda d: b"\x7fELF" + d[4:], "it does not begin with NSAXFILE"),
    ("version 0", lambda d: patch(d, 8, u32(0)), "has format version 0, but this runtime reads versions 3 to 6"),
    ("version 1", lambda d: patch(d, 8, u32(1)), "has format version 1, but this runtime reads versions 3 to 6"),
    ("flags", lambda d: patch(d, 12, u32(4)), "has format flags 4, but this runtime knows none"),
    ("one byte less", lambda d: d[:-1], "is truncated or has extra bytes: the header promises"),
    ("one byte more", lambda d: d + b"\0", "is truncated or has extra bytes: the header promises"),
    ("half a payload", lambda d: d[: len(d) // 2], "is truncated or has extra bytes: the header promises"),
    ("a size of 2^64 - 1", lambda d: patch(d, 16, b"\xff" * 8), "18446744073709551615 bytes of payload, found"),
    ("another hash", lambda d: patch(d, 24, bytes(8)), "the header says 0000000000000000"),
    ("a changed first byte", lambda d: patch(d, 32, bytes([d[32] ^ 1])), "is corrupted: its payload has the hash"),
    ("a changed last byte", lambda d: d[:-1] + bytes([d[-1] ^ 0x80]), "is corrupted: its payload has the hash"),
    ("a payload of zeros", lambda d: d[:32] + bytes(len(d) - 32), "is corrupted: its payload has the hash"),
]


def npy(header, data=bytes(128), version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def described(descr="<f4", order="False", shape="(4, 8)"):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"


# (name, bytes, expected message) of what should be an f32[4x8]
ARRAYS = [
    ("empty", b"", "not an .npy file"),
    ("a text", b"1.0 2.0\n", "not an .npy file"),
    ("no header", b"\x93NUMPY\x02\x00\x10\x00", "truncated in its header"),
    ("half a header", npy(described())[:40], "truncated: the header has"),
    ("too little data", npy(described(), bytes(127)), "an array f32[4x8] has 128 bytes, found 127"),
    ("too much data", npy(described(), bytes(132)), "an array f32[4x8] has 128 bytes, found 132"),
    ("no element", npy(described(), b""), "an array f32[4x8] has 128 bytes, found 0"),
    ("more elements than there are bytes", npy(described(shape="(4294967296, 4294967296)")), "found 128"),
    ("objects", npy(described(descr="|O")), "element type '|O' is not one of"),
    ("complex numbers", npy(described(descr="<c8")), "element type '<c8' is not one of"),
    ("another shape", npy(described(shape="(8, 4)")), "tensor 'x' is f32[4x8], but the array is f32[8x4]"),
    ("one dimension", npy(described(shape="(32,)")), "tensor 'x' is f32[4x8], but the array is f32[32]"),
    ("integers", npy(described(descr="<i4")), "tensor 'x' is f32[4x8], but the array is i32[4x8]"),
    ("a number beyond fp32", npy(described(descr="<f8"), struct.pack("<d", 1e300) * 32), "element 0 of the f64 array, 1e+300, has no exact f32"),
    ("a negative size", npy(described(shape="(-4, 8)")), "'-4' is not an unsigned integer"),
    ("a shape that is a word", npy(described(shape="four")), "the header is not a dictionary of type, order and shape"),
    ("a shape without end", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 8"), "the header is not a dictionary of type, order and shape"),
    ("no shape", npy("{'descr': '<f4', 'fortran_order': False}"), "lacks one of descr, fortran_order, shape"),
    ("an unknown key", npy("{'descr': '<f4', 'oder': False}"), "the header's key 'oder' is unknown"),
    ("a list", npy("['<f4', False, (4, 8)]"), "the header is not a dictionary"),
]


def first_shard(change):
    """Rewrites the first training shard."""

    def apply(folder):
        path = folder / "train_000000.bin"
        path.write_bytes(change(path.read_bytes()))

    return apply


def manifest(change):
    """Changes the parsed manifest."""

    def apply(folder):
        path = folder / "manifest.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


def manifest_text(change):
    def apply(folder):
        path = folder / "manifest.json"
        path.write_bytes(change(path.read_bytes()))

    return apply


def setting(*keys, to):
    def change(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return manifest(change)


def without(key):
    return manifest(lambda content: content.pop(key))


# (name, change of the folder, file named, expected message)
DATA = [
    ("an empty manifest", manifest_text(lambda d: b""), "manifest.json", "is no data manifest"),
    ("a manifest that is a list", manifest_text(lambda d: b"[1, 2]"), "manifest.json", "is no data manifest"),
    ("a manifest that is not UTF-8", manifest_text(lambda d: d.replace(b"markov", b"mark\xff")), "manifest.json", "is no data manifest"),
    ("format 5", setting("format", to=5), "manifest.json", "format 5, expected 1 to 4"),
    ("no hash of its own", without("xxh3"), "manifest.json", "xxh3"),
    ("an unknown name", setting("vocabulary", to=7), "manifest.json", "unknown name 'vocabulary'"),
    ("no format", without("format"), "manifest.json", "format"),
    ("no vocabulary", without("vocab_size"), "manifest.json", "vocab_size"),
    ("a vocabulary of 0", setting("vocab_size", to=0), "manifest.json", "vocab_size 0 is not in 1..1048576"),
    ("a vocabulary of 2^20 + 1", setting("vocab_size", to=1048577), "manifest.json", "vocab_size 1048577 is not in 1..1048576"),
    ("a vocabulary that is a word", setting("vocab_size", to="many"), "manifest.json", "is no data manifest"),
    ("documents whose bytes overflow", setting("train", "documents", to=2**61), "manifest.json", "2305843009213693952 documents, 281474976710656 are allowed"),
    ("tokens whose bytes overflow", setting("train", "shards", 0, "tokens", to=2**63), "manifest.json", "9223372036854775808 tokens, 281474976710656 are allowed"),
    ("a sum that is wrong", setting("train", "tokens", to=7), "manifest.json", "train has 7 tokens, its shards have"),
    ("a shard elsewhere", setting("train", "shards", 0, "file", to="../x.bin"), "manifest.json", "file name '../x.bin' leaves the directory"),
    ("a shard without a name", setting("train", "shards", 0, "file", to=""), "manifest.json", "leaves the directory"),
    ("a hash that is none", setting("train", "shards", 0, "xxh3", to="xyz"), "manifest.json", "xyz"),
    ("shards that are no list", setting("val", "shards", to=3), "manifest.json", "is no data manifest"),
    ("no validation split", without("val"), "manifest.json", "val"),
    ("another hash", setting("train", "shards", 0, "xxh3", to="0" * 16), "train_000000.bin", "its manifest says 0000000000000000"),
    ("no shard", lambda f: (f / "train_000000.bin").unlink(), "train_000000.bin", "No such file or directory"),
    ("half a shard", first_shard(lambda d: d[: SHARD_HEADER + 10]), "train_000000.bin", "the file holds 10 bytes of tokens"),
    ("a count above the file", first_shard(lambda d: patch(d, 8, u32(1 << 30))), "train_000000.bin", "its header says 1073741824 tokens"),
    ("a changed token", first_shard(lambda d: patch(d, SHARD_HEADER, b"\x01\x02")), "train_000000.bin", "has hash"),
    ("a shorter shard", first_shard(lambda d: patch(d, 8, u32(8))[: SHARD_HEADER + 16]), "train_000000.bin", "holds 8 tokens, its manifest says"),
]


def texts(folder):
    """Inputs of nsa-data pack."""
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / "empty").mkdir()


# (name, arguments of nsa-data, expected message); IN is the folder of texts
DATA_COMMANDS = [
    ("nothing to pack", ["pack", "IN/empty", "-o", "OUT"], "nothing to pack in"),
    ("no such text", ["pack", "IN/none", "-o", "OUT"], "no file or folder"),
    ("no validation text", ["pack", "IN/a.txt", "-o", "OUT"], "split is empty: 1 documents"),
    ("a fraction of 1", ["pack", "IN/a.txt", "-o", "OUT", "--val-fraction=1"], "must be in (0, 1), not 1"),
    ("a fraction below 0", ["pack", "IN/a.txt", "-o", "OUT", "--val-fraction=-0.5"], "must be in (0, 1), not -0.5"),
    ("a fraction that is none", ["pack", "IN/a.txt", "-o", "OUT", "--val-fraction=nan"], "must be in (0, 1), not nan"),
    ("shards of 0 tokens", ["pack", "IN/a.txt", "-o", "OUT", "--shard-tokens=0"], "tokens, not 0"),
    ("an output that is a file", ["pack", "IN/a.txt", "-o", "IN/a.txt"], "cannot create"),
    ("a vocabulary of 1", ["synth", "--vocab=1", "-o", "OUT"], "over 1 tokens is not possible"),
    ("an order of 9", ["synth", "--order=9", "-o", "OUT"], "a Markov chain of order 9 over 64 tokens"),
    ("an order of 0", ["synth", "--order=0", "-o", "OUT"], "a Markov chain of order 0 over"),
    ("too few tokens", ["synth", "--tokens=3", "-o", "OUT"], "3 tokens at a validation fraction of 0.05"),
    ("a kind of its own", ["synth", "--kind=zipf", "-o", "OUT"], "zipf"),
    ("more pairs than letters", ["synth", "--kind=recall", "--vocab=8", "--pairs=99", "-o", "OUT"], "pairs with a vocabulary of 8, not 99"),
    ("more queries than pairs", ["synth", "--kind=recall", "--pairs=4", "--queries=5", "-o", "OUT"], "asks for 1 to 4 of its pairs, not 5"),
    ("a count that is none", ["synth", "--tokens=5X", "-o", "OUT"], "'5X' is not a count"),
    ("a count of 30 digits", ["synth", "--tokens=" + "9" * 30, "-o", "OUT"], "is not a count"),
    ("an unknown option", ["synth", "--tokns=5", "-o", "OUT"], "unknown option '--tokns'; did you mean '--tokens'?"),
    ("no command", [], "subcommand"),
    ("an order-3 model", ["ngram", "IN", "--order=3"], "3"),
]

# Options of nsa-train, and values that are none of theirs
TRAIN_VALUES = {
    "nproc": ["0", "-1", "2x", "1e3", "1025", "", "99999999999999999999"],
    "stop-after": ["0", "-3", "soon", "1.5", ""],
    "stall-seconds": ["-1", "soon", "nan"],
    "profile": ["0", "-1", "many", "1048577"],
    "threads": ["-1", "1025", "all", "1.5"],
    "sample-bytes": ["-1", "1e3", "many"],
    "rank-seconds": ["0", "-5", "soon", "1e9"],
    "gpu": ["-1", "first"],
    "out-dir": [""], "separate-update": ["maybe"], "no-progress": ["2x"], "check-finite": ["x"],
}

# (name, arguments of nsa-run after the artefact, expected message)
RUN_COMMANDS = [
    ("no entry", [], "--entry is required"),
    ("an unknown entry", ["--entry=evil"], "unknown entry 'evil'; did you mean 'eval'?"),
    ("no input", ["--entry=eval"], "entry 'eval' needs --input for x (f32[4x8])"),
    ("an input without a file", ["--entry=eval", "--input=x"], "'x' is not of the form NAME=FILE.npy"),
    ("an input without a name", ["--entry=eval", "--input==x"], "'=x' is not of the form NAME=FILE.npy"),
    ("an input that is not there", ["--entry=eval", "--input=x=none.npy"], "cannot open 'none.npy'"),
    ("-1 threads", ["--entry=ids", "--threads=-1"], "cannot run on -1 threads"),
    ("no run at all", ["--entry=ids", "--repeat=0"], "0"),
    ("threads that are a word", ["--entry=ids", "--threads=all"], "all"),
]

