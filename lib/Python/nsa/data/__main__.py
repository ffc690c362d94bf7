"""python -m nsa.data: packs text and trains tokenizers."""

import argparse
import sys

from nsa import Error
from nsa.data._pack import pack
from nsa.data._shards import SHARD_TOKENS
from nsa.data._tokenizer import open_tokenizer, train_tokenizer


def _count(text):
    units = {"k": 10**3, "M": 10**6, "G": 10**9}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a count such as 100, 20k or 5M")
    return int(digits) * unit


def _parser():
    parser = argparse.ArgumentParser(prog="python -m nsa.data", description="Token shards for nsa-train from text.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="tokenize text into shards",
                                  description="Tokenizes parquet, JSON (.gz, .zst), Arrow files of datasets and text "
                                              "files into shards. Started again after an interruption, it goes on.")
    packing.add_argument("inputs", nargs="+", help="files and folders")
    packing.add_argument("-o", "--output", required=True, help="folder of the data set")
    packing.add_argument("--tokenizer", required=True, help="a tokenizer.json of the tokenizers library, or byte")
    packing.add_argument("--text-key", default="text", help="column, or name in JSON lines, of the text [text]")
    packing.add_argument("--end-of-text", metavar="TOKEN", help="the token that ends a document [<|endoftext|> or the like]")
    packing.add_argument("--val-fraction", type=float, default=0.01, help="share of documents held out [0.01]")
    packing.add_argument("--workers", type=int, help="processes [one for each core]")
    packing.add_argument("--shard-tokens", type=_count, default=SHARD_TOKENS, help="tokens of a shard [100M]")
    packing.add_argument("--include", metavar="GLOB", action="append", default=[], help="take only files that match (repeatable)")
    packing.add_argument("--exclude", metavar="GLOB", action="append", default=[], help="leave out files that match (repeatable)")
    packing.add_argument("--max-inflated-bytes", type=_count, help="what a compressed file may inflate to; 0 takes any [1G, or "
                         "100 times its size]")
    packing.add_argument("--skip-bad", metavar="N", type=_count, default=0, help="leave out and name up to N documents that are "
                         "damaged, and what follows in files that are [0]")
    packing.add_argument("--overwrite", action="store_true", help="replace the data set in the folder")
    training = commands.add_parser("train-tokenizer", help="train a byte-level BPE",
                                   description="Trains a byte-level BPE, as GPT-2's, with the end of text <|endoftext|>.")
    training.add_argument("inputs", nargs="+", help="files and folders, as for pack")
    training.add_argument("-o", "--output", required=True, help="the tokenizer.json to write")
    training.add_argument("--vocabulary", type=_count, default=50257, help="tokens in all [50257]")
    training.add_argument("--text-key", default="text", help="column, or name in JSON lines, of the text [text]")
    training.add_argument("--max-bytes", type=_count, default=0, help="stop after so much text; 0 takes all [0]")
    return parser


def _warn(message):
    print(f"nsa.data: warning: {message}", file=sys.stderr)


def main(arguments=None):
    parsed = vars(_parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        if command == "pack":
            if parsed["workers"] is not None and parsed["workers"] < 1:
                raise Error(f"--workers must be at least 1, not {parsed['workers']}")
            counts = pack(**parsed, warn=_warn)
            print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()))
            if changes := open_tokenizer(parsed["tokenizer"], parsed["end_of_text"]).changes():
                print(f"bits per byte will be of text as the tokenizer changes it: {changes}")
            print(f"wrote {parsed['output']}/manifest.json")
        else:
            made = train_tokenizer(**parsed)
            print(f"wrote {parsed['output']}: {made:,} tokens")
    except Error as error:
        print(f"nsa.data: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nsa.data: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
