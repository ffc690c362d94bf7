"""nsa-export and nsa-import: models to transformers and back."""

import argparse
import sys

from nsa import Error, __version__
from nsa.hf import export, import_model
from nsa.hf._families import FAMILIES


def _run(name, action):
    try:
        print(action())
    except Error as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def main_export(arguments=None):
    parser = argparse.ArgumentParser(prog="nsa-export", description="Writes a checkpoint for other software.")
    parser.add_argument("checkpoint",
                        help="a checkpoint of nsa-train, or a run directory, whose newest good one is taken")
    parser.add_argument("--version", action="version", version=f"nsa-export {__version__}")
    parser.add_argument("--hf", required=True, metavar="FOLDER",
                        help="for transformers: weights, configuration, tokenizer and a file of Python that "
                             "AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True) runs")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of a model in the folder")
    parser.add_argument("--original", action="store_true",
                        help="as the model of transformers that nsa-import made the checkpoint of, else as a Llama if it is "
                             "one: it needs no code")
    parsed = parser.parse_args(arguments)

    def write():
        count = export(parsed.checkpoint, parsed.hf, overwrite=parsed.overwrite, original=parsed.original)
        return f"wrote {parsed.hf}: {count:,} parameters"
    return _run("nsa-export", write)


def _number(text):
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number")
    return int(text)


def main_import(arguments=None):
    parser = argparse.ArgumentParser(prog="nsa-import", description="Makes a checkpoint of a model of transformers: "
                                     f"what nsa-export wrote, or a dense model ({', '.join(FAMILIES)}).")
    parser.add_argument("folder", help="folder with config.json and safetensors")
    parser.add_argument("--version", action="version", version=f"nsa-import {__version__}")
    parser.add_argument("-o", "--output", required=True, metavar="RUN", help="run directory to make")
    parser.add_argument("--attention", choices=["dense", "nsa"], default="dense",
                        help="of a dense model: as it is, or the three branches with shared keys and values [dense]")
    parser.add_argument("--rotary", choices=["halves", "pairs"], default="halves",
                        help="of a dense model: channels that are rotated together, i and i + d/2 as in transformers, "
                             "or 2i and 2i + 1 [halves]")
    parser.add_argument("--seq-len", type=_number, metavar="N",
                        help="of a dense model: train.seq_len [max_position_embeddings, at most 4096]")
    parser.add_argument("--seed", type=_number, default=1, metavar="N",
                        help="of --attention=nsa: seed of the gates' weights [1]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a key of the configuration, such as nsa.w=1024 (repeatable)")
    parsed = parser.parse_args(arguments)

    def write():
        checkpoint = import_model(parsed.folder, parsed.output, attention=parsed.attention, rotary=parsed.rotary,
                                  seq_len=parsed.seq_len, seed=parsed.seed, settings=parsed.set)
        return f"wrote {checkpoint}"
    return _run("nsa-import", write)


if __name__ == "__main__":
    tools = {"export": main_export, "import": main_import}
    if len(sys.argv) < 2 or sys.argv[1] not in tools:
        sys.exit("usage: python -m nsa.hf export|import ...")
    sys.exit(tools[sys.argv[1]](sys.argv[2:]))
