"""python -m nsa.wandb: logs a run of nsa-train to Weights & Biases."""

import argparse
import sys

from nsa import Error
from nsa.wandb._follow import follow


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m nsa.wandb",
                                     description="Logs a run of nsa-train to Weights & Biases, until it ends.")
    parser.add_argument("path", metavar="RUN", help="directory of the run")
    parser.add_argument("--project", help="project there [wandb's own default]")
    parser.add_argument("--name", help="name there [that of the directory]")
    parser.add_argument("--once", action="store_true", help="log what there is by now, and end")
    parser.add_argument("--seconds", type=float, default=5.0, help="between two looks [5]")
    parsed = parser.parse_args(arguments)
    if not parsed.seconds > 0:
        parser.error(f"--seconds must be above 0, not {parsed.seconds:g}")
    try:
        end = follow(**vars(parsed))
        print(f"followed {parsed.path}: {end or 'it goes on'}")
    except Error as error:
        print(f"nsa.wandb: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nsa.wandb: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
