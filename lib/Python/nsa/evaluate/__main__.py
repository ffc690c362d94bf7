"""nsa-eval: what a checkpoint has learnt."""

import argparse
import json
import sys

from nsa import Error, InputError, __version__
from nsa._arguments import whole_number
from nsa.evaluate import Scorer, _report, choices, copying, loss, needle, recall

_PROBES = {"recall": recall, "copying": copying, "needle": needle}

# What an option is if it is not given, and what has to be evaluated, or may not be given, for it to say anything.
_DEFAULTS = {
    "split": ("val", "--data"), "windows": (0, "--data or --text"), "text_key": ("text", "--text"),
    "samples": (32, "--probe"), "seed": (1, "--probe"), "max_distance": (0, "--probe"),
    "plot": (None, "--probe"), "pairs": (4, "--probe recall"), "vocab": (0, "--probe recall or --probe copying"),
    "micro_batch": (1, "no --artifact"), "target": ("cpu", "no --artifact"), "precision": (None, "no --artifact"),
}


def _parser():
    parser = argparse.ArgumentParser(prog="nsa-eval", description="Evaluates a checkpoint: losses, generated probes, "
                                     "multiple choice. Give one or more of --data, --text, --probe and --choices.")
    parser.add_argument("checkpoint", nargs="+", help="a checkpoint of nsa-train, or a run directory (its newest good "
                        "one); several are evaluated one after the other")
    parser.add_argument("--version", action="version", version=f"nsa-eval {__version__}")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON, of several checkpoints a list; - prints "
                        "them instead of tables")
    parser.add_argument("--plot", metavar="FILE", help="draw the accuracy of --probe by distance, a line for each checkpoint; "
                        "the package matplotlib draws, and .svg, .png or .pdf says how")
    what = parser.add_argument_group("what to evaluate")
    what.add_argument("--data", action="append", default=[], metavar="FOLDER",
                      help="loss on shards, as nsa-train's --data (repeatable)")
    what.add_argument("--text", nargs="+", default=[], metavar="FILE",
                      help="loss on text: files and folders as python -m nsa.data pack takes them")
    what.add_argument("--probe", action="append", default=[], choices=[*_PROBES, "all"],
                      help="a generated task: recall, copying, needle, or all of them (repeatable)")
    what.add_argument("--choices", action="append", default=[], metavar="FILE", help="multiple choice from JSON lines "
                      "with context, choices and answer, or HellaSwag's names (repeatable)")
    how = parser.add_argument_group("how much")
    how.add_argument("--split", choices=["train", "val"], help="split of --data [val]")
    how.add_argument("--windows", type=whole_number(0), metavar="N", help="windows of --data and --text, evenly over all, "
                     "those that nsa-train chooses; 0 takes all [0]")
    how.add_argument("--text-key", metavar="NAME", help="column, or name in JSON lines, of the text [text]")
    how.add_argument("--samples", type=whole_number(1), metavar="N", help="samples of a probe for each distance [32]")
    how.add_argument("--seed", type=whole_number(0), metavar="N", help="what probes draw follows from it [1]")
    how.add_argument("--max-distance", type=whole_number(0), metavar="N",
                     help="most tokens that a probe asks over; 0 takes what the model does [0]")
    how.add_argument("--pairs", type=whole_number(1), metavar="N", help="keys and values of recall [4]")
    how.add_argument("--vocab", type=whole_number(0), metavar="N", help="recall and copying take ids below N, laid out as "
                     "by nsa-data synth --kind recall --vocab N; 0 takes letters and words of the tokenizer [0]")
    model = parser.add_argument_group("the model")
    model.add_argument("--seq-len", type=whole_number(1), metavar="N",
                       help="most tokens of a sequence [those of the training]")
    model.add_argument("--micro-batch", type=whole_number(1), metavar="N", help="sequences that are computed at once [1]")
    model.add_argument("--target", help="cpu, or a GPU such as sm_90a [cpu]")
    model.add_argument("--device", type=whole_number(0), default=0, metavar="N", help="number of the GPU [0]")
    model.add_argument("--precision", choices=["fp32", "bf16", "fp16"], help="compute type [that of the training]")
    model.add_argument("--threads", type=whole_number(0), default=0, metavar="N", help="threads of the CPU; 0 takes all [0]")
    model.add_argument("--artifact", metavar="FILE",
                       help="a compiled model with these parameters; then no compiler is needed")
    return parser


def _fill(parser, parsed):
    """Gives options their defaults; one that would say nothing is an error."""
    if not (parsed.data or parsed.text or parsed.probe or parsed.choices):
        parser.error("there is nothing to evaluate: give --data, --text, --probe or --choices")
    parsed.probe = list(_PROBES) if "all" in parsed.probe else list(dict.fromkeys(parsed.probe))
    given = {"--data": parsed.data, "--text": parsed.text, "--probe": parsed.probe,
             "no --artifact": not parsed.artifact, **{f"--probe {name}": name in parsed.probe for name in _PROBES}}
    for name, (default, needed) in _DEFAULTS.items():
        if getattr(parsed, name) is None:
            setattr(parsed, name, default)
        elif not any(given[what] for what in needed.split(" or ")):
            parser.error(f"--{name.replace('_', '-')} says nothing: it needs {needed}")


def _open(parsed, checkpoint):
    options = {"seq_len": parsed.seq_len, "threads": parsed.threads, "device": parsed.device}
    if parsed.artifact:
        return Scorer(checkpoint, artifact=parsed.artifact, **options)
    return Scorer(checkpoint, micro_batch=parsed.micro_batch, target=parsed.target, precision=parsed.precision,
                  **options)


def _evaluate(parsed, checkpoint):
    scorer = _open(parsed, checkpoint)
    model = scorer.model()
    results = {"checkpoint": model.checkpoint, "step": model.step, "target": model.module.target,
               "precision": scorer.precision}
    results["loss"] = [loss(scorer, shards=folder, split=parsed.split, windows=parsed.windows)
                       for folder in parsed.data]
    if parsed.text:
        results["loss"].append(loss(scorer, files=parsed.text, text_key=parsed.text_key, windows=parsed.windows))
    more = {"recall": {"pairs": parsed.pairs, "vocab": parsed.vocab}, "copying": {"vocab": parsed.vocab}, "needle": {}}
    results["probes"] = {name: _PROBES[name](scorer, samples=parsed.samples, seed=parsed.seed,
                                             max_distance=parsed.max_distance, **more[name]) for name in parsed.probe}
    results["choices"] = [choices(scorer, path) for path in parsed.choices]
    return results


def _write(results, path):
    text = json.dumps(results if len(results) > 1 else results[0], indent=1)
    if path == "-":
        print(text)
    elif path:
        try:
            with open(path, "w") as file:
                file.write(text + "\n")
        except OSError as error:
            raise InputError(f"cannot write '{path}': {error.strerror}") from error


def main(arguments=None):
    parser = _parser()
    parsed = parser.parse_args(arguments)
    _fill(parser, parsed)
    try:
        if parsed.plot:
            _report.check_plot(parsed.plot)
        results = []
        for checkpoint in parsed.checkpoint:
            results.append(_evaluate(parsed, checkpoint))
            if parsed.json != "-":
                print("\n".join(_report.lines(results[-1])), flush=True)
        _write(results, parsed.json)
        if parsed.plot:
            _report.plot(results, parsed.checkpoint, parsed.plot)
    except Error as error:
        print(f"nsa-eval: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
