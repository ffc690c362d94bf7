"""nsa-serve: OpenAI's interface over HTTP to a checkpoint."""

import argparse
import asyncio
import signal
import sys

from nsa import Error, Scheduler, __version__
from nsa._arguments import whole_number
from nsa.serve import Server


def _parser():
    parser = argparse.ArgumentParser(prog="nsa-serve", description="Answers /v1/completions, /v1/chat/completions and /v1/models "
                                     "over HTTP, as OpenAI's interface does, many requests at once.")
    parser.add_argument("checkpoint", help="a checkpoint of nsa-train, or a run directory (its newest good one)")
    parser.add_argument("--version", action="version", version=f"nsa-serve {__version__}")
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on; there are no passwords and no "
                       "encryption [127.0.0.1]")
    where.add_argument("--port", type=whole_number(0), default=8000, metavar="N", help="port; 0 takes a free one [8000]")
    where.add_argument("--name", help="what clients call the model [that of the run directory]")
    where.add_argument("--chat", metavar="FOLDER", help="Hugging Face folder with a chat template [the checkpoint]")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--slots", type=whole_number(1), metavar="N", help="prompts that are continued at once [8]")
    limits.add_argument("--context", type=whole_number(1), metavar="N", help="tokens of a prompt and its continuation at most "
                        "[4 times train.seq_len]")
    limits.add_argument("--max-tokens", type=whole_number(1), metavar="N", help="tokens that a request generates at most [the context]")
    limits.add_argument("--max-clients", type=whole_number(1), default=256, metavar="N",
                        help="requests that are answered or wait at once; more get the status 429 [256]")
    limits.add_argument("--max-body", type=whole_number(1), default=1024, metavar="KIB", help="size of a request [1024]")
    limits.add_argument("--timeout", type=whole_number(1), default=600, metavar="SECONDS", help="time of a request [600]")
    limits.add_argument("--prefill-chunk", type=whole_number(0), metavar="N", help="tokens of a prompt that are taken in while others "
                        "wait, a multiple of the stride of compressed blocks; 0 takes in one a step, with less memory [128]")
    limits.add_argument("--pages", type=whole_number(1), metavar="N", help="pages of caches, of one selected block of tokens each, that "
                        "all slots share; a request waits until there are enough [each slot has the whole context]")
    limits.add_argument("--consistent", action="store_true", help="compute each token as it is computed in a prompt, bit for bit, which "
                        "takes longer; --prefill-chunk is then 64 unless given")
    model = parser.add_argument_group("the model")
    model.add_argument("--target", help="cpu, or a GPU such as sm_90a [cpu]")
    model.add_argument("--device", type=whole_number(0), default=0, metavar="N", help="number of the GPU [0]")
    model.add_argument("--precision", choices=["fp32", "bf16", "fp16"], help="compute type [that of the training]")
    model.add_argument("--threads", type=whole_number(0), default=0, metavar="N", help="threads of the CPU; 0 takes all [0]")
    model.add_argument("--artifact", metavar="FILE", help="what nsa-compile --context made of the model, with as many sequences as "
                       "slots; then no compiler is needed")
    return parser


async def _serve(server, parsed):
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    port = await server.start(parsed.host, parsed.port)
    print(f"nsa-serve: http://{parsed.host}:{port}/v1 answers for '{server.name}'", flush=True)
    await stopped.wait()
    await server.close()


def main(arguments=None):
    parsed = _parser().parse_args(arguments)
    try:
        scheduler = Scheduler(parsed.checkpoint, slots=parsed.slots, context=parsed.context, prefill_chunk=parsed.prefill_chunk,
                              pages=parsed.pages, consistent=parsed.consistent, artifact=parsed.artifact, target=parsed.target, precision=parsed.precision, threads=parsed.threads, device=parsed.device)
        server = Server(scheduler, parsed.name, chat=parsed.chat, tokens=parsed.max_tokens, clients=parsed.max_clients,
                        body_bytes=parsed.max_body << 10, seconds=parsed.timeout)
        asyncio.run(_serve(server, parsed))
    except Error as error:
        print(f"nsa-serve: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
