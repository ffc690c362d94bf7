#!/usr/bin/env python3
"""Seeds and dictionaries for the fuzz targets, from the project's own tools
and tests: make-corpus.py BUILD OUT writes OUT/<target>/seeds/* and
OUT/<target>/dict. BUILD has the default build's tools."""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "test/invalid"), str(ROOT / "test/Dialect/Inputs")]
sys.dont_write_bytecode = True
import expand  # noqa: E402
import operations  # noqa: E402 - the operations that test/invalid breaks

# Seeds above this size are cut or left out: small inputs mutate faster.
MAX_SEED = 9000


class Corpus:
    """The seeds and the dictionary of one target."""

    def __init__(self, out, target):
        self.folder = out / target
        self.seeds = self.folder / "seeds"
        self.seeds.mkdir(parents=True, exist_ok=True)
        for old in self.seeds.iterdir():
            old.unlink()
        self.count = 0

    def add(self, data):
        if isinstance(data, str):
            data = data.encode()
        (self.seeds / f"{self.count:04}").write_bytes(data)
        self.count += 1

    def write_dictionary(self, words):
        lines = []
        for word in sorted(set(words)):
            escaped = "".join(
                c if " " <= c <= "~" and c not in '"\\' else f"\\x{ord(c):02x}"
                for c in word
            )
            lines.append(f'"{escaped}"\n')
        (self.folder / "dict").write_text("".join(lines))


def run(*command):
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True
    )


# --- artefacts ---------------------------------------------------------------

MATRIX = """func.func @f(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>)
    -> (tensor<4x4xf32> {nn.name = "y"}) {
  %y = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
"""


def artifacts(corpus, build, scratch):
    file = scratch / "seed.nsax"
    run(build / "bin/nsa-test-artifact", file)
    corpus.add(file.read_bytes())
    sources = [MATRIX, (ROOT / "test/tools/nsa-compile/Inputs/add.mlir").read_text()]
    for source in sources:
        (scratch / "seed.mlir").write_text(source)
        run(build / "bin/nsa-compile", scratch / "seed.mlir", "-o", file)
        corpus.add(file.read_bytes())
    corpus.add(b"NSAXFILE" + struct.pack("<IIQQ", 1, 0, 0, 0))
    corpus.write_dictionary(["NSAXFILE", "NSAX", "cpu", "objects-x86-64", "!<arch>", "\x7fELF"])


# --- configurations ----------------------------------------------------------


def configurations(corpus):
    words = ["---", "...", "&a ", "*a", "<<: ", "!!int ", "!!str ", "| ", "> "]
    words += ["? ", "- ", "{", "}", "[", "]", "'", '"', "# ", "0x1", "1e9", ".inf"]
    words += ["~", "null", "#set model.dim=8\n"]
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        text = path.read_text()
        corpus.add(text)
        corpus.add("#set train.steps=7\n" + text)
        # One section alone: the others keep their defaults.
        for section in re.findall(r"^\w+:\n(?:[ #].*\n|\n)+", text, re.MULTILINE):
            corpus.add(section)
        words += re.findall(r"\w+:", text)
    schema = (ROOT / "lib/Support/ConfigKeys.inc").read_text()
    words += [f"{word}: " for word in re.findall(r'"([a-z_0-9]+)"', schema)]
    corpus.add("model: {dim: 64, n_heads: 4, d_k: 16}\ntrain: {seq_len: 64}\n")
    corpus.add("model:\n  mlp: &m silu\nnsa:\n  phi: mean\n")
    corpus.add("stages:\n  - {steps: 200}\n  - {steps: 9, seq_len: 512, micro_batch: 2, rope_base: 5e4}\n")
    corpus.write_dictionary(words)


# --- token shards and their manifest -----------------------------------------


def shards(corpus, manifests, build, scratch):
    data = scratch / "data"
    run(build / "bin/nsa-data", "synth", "--vocab", 16, "--tokens", 300, "-o", data)
    for path in sorted(data.glob("*.bin")):
        corpus.add(path.read_bytes())
    corpus.add(struct.pack("<3i", 20240520, 1, 0) + bytes(1012))
    corpus.add(struct.pack("<3i", 20240520, 1, -1) + bytes(1012))
    corpus.write_dictionary(["\x48\xd9\x34\x01"])
    text = (data / "manifest.json").read_text()
    manifests.add(text)
    manifest = json.loads(text)
    for split in "train", "val":
        manifest[split] = {"tokens": 0, "documents": 0, "shards": []}
    manifests.add(json.dumps(manifest))
    manifests.write_dictionary(re.findall(r'"\w+"', text) + ["1e400", "-1", "[["])


# --- arrays ------------------------------------------------------------------


def npy(descriptor, shape, data, version=1, order=False):
    header = f"{{'descr': '{descriptor}', 'fortran_order': {order}, 'shape': {shape}, }}\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def arrays(corpus):
    for path in sorted((ROOT / "test/tools/nsa-run/Inputs").glob("*.npy")):
        corpus.add(path.read_bytes())
    for version in 1, 2, 3:
        corpus.add(npy("<f4", "(2, 3)", bytes(24), version))
    for descriptor, size in ("<f8", 8), ("<i4", 4), ("<i8", 8), ("<u2", 2):
        corpus.add(npy(descriptor, "(2,)", bytes(2 * size)))
    corpus.add(npy("<f4", "()", bytes(4)))
    corpus.add(npy("<f4", "(0, 18446744073709551615)", b""))
    corpus.add(npy("<f4", "(2, 2)", bytes(16), order=True))
    corpus.write_dictionary(
        ["'descr'", "'fortran_order'", "'shape'", "True", "False", "<f4", "<f8"]
        + ["<i4", "<i8", "<u2", "()", "(0,)", ", ", "18446744073709551616"]
    )


def safetensors(header, data=b""):
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + data


def tensors(corpus):
    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    corpus.add(safetensors({}))
    corpus.add(safetensors({"__metadata__": {"step": "3"}}))
    corpus.add(safetensors({"w": tensor("F32", [2, 2], 0, 16)}, bytes(16)))
    corpus.add(
        safetensors(
            {
                "__metadata__": {"a": "b"},
                "b": tensor("BF16", [3], 8, 14),
                "a": tensor("I64", [], 0, 8),
                "empty": tensor("U8", [0, 5], 14, 14),
            },
            bytes(14),
        )
    )
    corpus.add(safetensors('{"a": {"shape": [[[[[[1]]]]]]}}'))
    corpus.write_dictionary(
        ['"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', '"F32"', '"BF16"']
        + ['"I64"', '"BOOL"', "[0,0]", "1e400", "-1", "18446744073709551615", "\\u0000"]
    )


# --- MLIR --------------------------------------------------------------------


FLAG = re.compile(
    r"""--(nsa-[\w-]+|canonicalize|cse|symbol-dce)(?:="([^"]*)"|=(\S+))?(?=\s|$)"""
)


def pipelines(text):
    """What the RUN lines of a test run, as textual pipelines."""
    found = []
    for line in re.findall(r"RUN:.*?nsa-opt (.*)", text.replace("\\\n", " ")):
        line = re.split(r"\s2?>|\|", line)[0]
        found += re.findall(r'--pass-pipeline="builtin.module\((.*)\)"', line)
        passes = []
        for name, quoted, plain in FLAG.findall(line):
            options = quoted or plain
            passes.append(f"{name}{{{options}}}" if options else name)
        if passes:
            found.append(",".join(passes))
    return list(dict.fromkeys(found))


def clean(chunk):
    """A piece of a test without what only lit and FileCheck read."""
    lines = []
    for line in chunk.splitlines():
        code = re.sub(r"\s*//.*$", "", line)
        if code.strip():
            lines.append(code)
    return "\n".join(lines) + "\n" if lines else ""


MODEL = """model: {{dim: 8, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 4, d_v: 4, attention: {attention}}}
nsa: {{l: 4, d: 2, l_sel: 4, n_sel: 2, w: 4, phi: {phi}}}
train: {{seq_len: 12, batch_size: 1, micro_batch: 1}}
"""


def models(build, scratch):
    """Whole models, as small as they get."""
    for attention, phi in ("nsa", "mean"), ("nsa", "linear"), ("window", "mean"):
        (scratch / "model.yaml").write_text(MODEL.format(attention=attention, phi=phi))
        model = scratch / "model.mlir"
        run(build / "bin/nsa-model", scratch / "model.yaml", "-o", model)
        model.write_text(re.sub(r" config \{(?s:.*?)\}\} \{", " {", model.read_text()))
        for options in ["--columns=0"], ["--columns=0", "--nsa-expand-model"]:
            yield run(build / "bin/nsa-opt", model, *options).stdout.decode()


def mlir(corpus, build, scratch):
    words = set()
    options = ("", "{precision=bf16}", "{recompute=block}", "{recompute=cheap micro-batch=2}")
    for text in models(build, scratch):
        for option in options:
            corpus.add(f"// PIPELINE: nsa-pipeline{option}\n{text}")
    for _, text in operations.valid():
        for option in options[:2]:
            corpus.add(f"// PIPELINE: nsa-pipeline{option}\n{text}")
    tables = (ROOT / "test/Dialect").rglob("invalid-*.test")
    for path in sorted([*(ROOT / "test").rglob("*.mlir"), *tables]):
        text = path.read_text()
        if path.suffix == ".test":
            text = expand.expand_table(text)
        words |= set(re.findall(r"[#!%]?\b[a-z]+[._][a-z_.0-9]+", text))
        runs = pipelines(text) or ["nsa-pipeline"]
        for chunk in re.split(r"^// -----.*\n", text, flags=re.MULTILINE):
            code = clean(chunk)
            if not 0 < len(code) <= MAX_SEED:
                continue
            for pipeline in runs[:3]:
                corpus.add(f"// PIPELINE: {pipeline}\n{code}")
            if "func.func" in code:
                corpus.add(code)
    words |= {"tensor<1x0x2x16xf32>", "memref<4xf32>", "!tile.tile<4x4xf32>", "loc("}
    corpus.write_dictionary(words)


def main():
    build, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        artifacts(Corpus(out, "ArtifactFuzzer"), build, scratch)
        configurations(Corpus(out, "ConfigFuzzer"))
        shards(Corpus(out, "ShardFuzzer"), Corpus(out, "ManifestFuzzer"), build, scratch)
        arrays(Corpus(out, "NpyFuzzer"))
        tensors(Corpus(out, "SafetensorsFuzzer"))
        mlir(Corpus(out, "OptFuzzer"), build, scratch)


if __name__ == "__main__":
    main()
