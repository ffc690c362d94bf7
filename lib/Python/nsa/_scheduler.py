"""Many prompts at once."""

import codecs
import functools
import re
import threading
import typing

from nsa._arguments import optional, path, real, several, takes, text, texts, truth, whole
from nsa._checkpoint import Checkpoint
from nsa._compile import load
from nsa._runtime import InputError, RunError, StopText

#: Checks of what decides the draws.
SAMPLING = {"tokens": whole(1), "temperature": real("0 or more", lambda value: value >= 0), "top_k": whole(),
            "top_p": real("more than 0 and at most 1", lambda value: 0 < value <= 1), "seed": whole(0, (1 << 64) - 1),
            "ignore_end": truth}


def list_stops(stop, is_text):
    """The texts that end a continuation, of one or several."""
    stop = [stop] if isinstance(stop, str) else texts("stop", stop)
    if stop and not is_text:
        raise InputError("stop is for texts, and a prompt is ids")
    if "" in stop:
        raise InputError("stop has an empty text, which every text contains")
    return stop


def ids(name, value):
    """A list of ids."""
    return [whole(0, (1 << 31) - 1)(f"{name}[{i}]", each) for i, each in enumerate(several(name, value, "a list of ids"))]


def part_of(context, consistent):
    """Ids of a part of a prompt that is usual."""
    return min(64 if consistent else 128, 1 << context.bit_length() - 1)


class GeneratedToken(typing.NamedTuple):
    """See Scheduler.step."""
    request: int
    id: int
    text: str
    finish: str | None
    logprobs: list


class _Text:
    """The text of a request so far: bytes of tokens become characters, up to the first stop."""

    def __init__(self, words, stops):
        self._words = words
        self._stop = StopText(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token, finish):
        """What is known after a token (None: one that is no text), and why it was the last one."""
        word = self._words[token] if token is not None and token < len(self._words) else b""
        known = self._stop.push(self._decoder.decode(word, bool(finish)))
        if self._stop.stopped:
            finish = "stop"
        elif finish:
            known += self._stop.finish()
        return known, finish


class Sequences:
    """The sequences of a module with caches: requests of ids, and their texts. `owner` is a Checkpoint."""

    def __init__(self, owner, module, prefills=False, consistent=False):
        self._text, self._vocab = owner._text, owner.vocab
        self._program = module.program.schedule(prefills, consistent)
        self._texts = {}
        # A text begins with its request, whatever thread steps.
        self._lock = threading.RLock()
        self.slots, self.context, self.longest = self._program.slots, self._program.context, self._program.longest
        self.count, self.selection = self._program.count, self._program.selection

    def add(self, ids, tokens, sampling, seed, is_text, stop=(), ends=(), stream=0, given=(), logprobs=-1):
        excluded = sorted(self._silent.difference(ends)) if is_text else ()
        temperature, top_k, top_p = sampling
        with self._lock:
            request = self._program.add(ids, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                                        stream=stream, ends=ends, excluded=excluded, given=given, logprobs=logprobs)
            if is_text:
                self._texts[request] = _Text(self._text.bytes, stop)
            return request

    @functools.cached_property
    def _silent(self):
        return frozenset(self._text.silent(self._vocab))

    def cancel(self, request):
        with self._lock:
            self._texts.pop(request, None)
            return self._program.cancel(request)

    def step(self):
        with self._lock:
            tokens, ended = [], set()
            for token in self._program.step():
                # A text may end before the last of its tokens of a step.
                if token[0] not in ended:
                    tokens.append(self._take(*token))
                    ended.update([token[0]] if tokens[-1].finish else [])
            return tokens

    def _take(self, request, token, finish, logprobs):
        text = ""
        if request in self._texts:
            is_text = finish not in ("stop", "not finite")
            text, found = self._texts[request].push(token if is_text else None, finish)
            finish = found if is_text else finish
            if finish:
                self.cancel(request)
        return GeneratedToken(request, token, text, finish, logprobs)

    def run(self, requests, return_selection=False):
        """What requests get, and what layers selected, once all have ended."""
        tokens = {request: [] for request in requests}
        selections = dict.fromkeys(requests)
        going = len(requests)
        while going:
            for token in self.step():
                tokens[token.request].append(token)
                if token.finish == "not finite":
                    raise RunError(f"the logits of prompt {requests.index(token.request) + 1} are not finite after "
                                   f"{len(tokens[token.request]) - 1} tokens more")
                going -= bool(token.finish)
                if token.finish and return_selection:
                    selections[token.request] = self.selection(token.request)
        return list(tokens.values()), list(selections.values())


class Scheduler:
    """Continues prompts that come and go, many at once: each joins as soon as a slot is free, while others go on.

    What a prompt gets depends on it, its options and `seed` alone: others change no bit of it.
    `slots` (8) prompts are continued at once, each with what follows in a context of `context` ids
    (4 times those of a sequence of the training). Prompts are taken in by parts of `prefill_chunk` (128) ids,
    one in each step of the others, and parts that a prompt shares with one before are copied; 0 takes in an id a step,
    with less memory for windows and compressed keys. With `pages`, slots share so many pages of one selected block of ids
    each in place of rows for the whole context: a request waits until there are enough for all of its ids, and what it
    shares with others has the same pages. With `consistent`, each id is computed by the part of `prefill_chunk` (64) ids that
    it is in, again, and has the same bits generated and in a prompt (docs/consistency.md). The program is compiled from the checkpoint's configuration, with the
    keywords of nsa.Model; or give `artifact`, which nsa-compile makes with --context and as many sequences as there are
    slots. Threads may share a scheduler.

    Errors: InputError for wrong arguments, and where a program has other bits for other slots;
    RunError if the machine cannot run it.
    """

    @takes(checkpoint=path, slots=optional(whole(1, 4096)), context=optional(whole(1)), prefill_chunk=optional(whole()),
           pages=optional(whole(1)), consistent=truth, target=optional(text), precision=optional(text))
    def __init__(self, checkpoint, *, slots=None, context=None, prefill_chunk=None, pages=None, consistent=False, artifact=None,
                 target=None, precision=None, **options):
        compiled = {"slots": slots, "context": context, "prefill_chunk": prefill_chunk, "pages": pages, "target": target,
                    "precision": precision}
        given = [name for name, value in compiled.items() if value is not None]
        if artifact is not None and given:
            raise InputError(f"artifact is compiled, and {', '.join(given)} cannot be chosen for it: leave out one or the other")
        self._model = model = Checkpoint(checkpoint)
        if artifact is not None:
            module = load(artifact, **options)
        else:
            context = context or 4 * int(re.search(r"^  seq_len: *(\d+)", model.config, re.M)[1])
            if prefill_chunk is None:
                prefill_chunk = part_of(context, consistent)
            module = model._compile(target=target or "cpu", micro_batch=slots or 8, context=context, prefill_chunk=prefill_chunk,
                                    pages=pages or 0, precision=precision or model._weights.precision, **options)
        self._sequences = Sequences(model, model._load_caches(module), consistent=consistent)
        #: Prompts that are continued at once, and the most ids of each with what follows: by the context, and by all pages.
        self.slots, self.context, self.longest = self._sequences.slots, self._sequences.context, self._sequences.longest

    def __repr__(self):
        return (f"<nsa.Scheduler '{self._model.checkpoint}': {self.running} of {self.slots} slots, {self.waiting} waiting, "
                f"a context of {self.context}>")

    @property
    def waiting(self):
        """Requests without a slot."""
        return self._sequences.count()[0]

    @property
    def running(self):
        """Requests that have a slot."""
        return self._sequences.count()[1]

    @takes(**SAMPLING, stop_ids=ids, logprobs=optional(whole(0, 1000)), number=whole(), as_text=optional(truth))
    def add(self, prompt, tokens=256, *, temperature=1.0, top_k=0, top_p=1.0, seed=0, stop=(), stop_ids=(), ignore_end=False,
            logprobs=None, number=0, as_text=None):
        """Queues a prompt, a text or ids [T], with the options of Model.generate. Returns the number of the request.

        Of the ids `stop_ids`, each ends it, too. `logprobs` asks for the log-probability of each id and of so many most
        likely ones. `number` tells apart prompts of one seed: those of a list of Model.generate have 0, 1, ... `as_text`
        says whether the continuation is a text, as it is where the prompt is one.
        """
        is_text = isinstance(prompt, str) if as_text is None else as_text
        stop = list_stops(stop, is_text)
        if is_text or isinstance(prompt, str):
            self._model._check_texts()
        if isinstance(prompt, str):
            prompt = self._model._text.encode([prompt])[0]
        prompt = self._model._check_prompt("the prompt", prompt, tokens, self.context)
        ends = [*stop_ids, *([] if ignore_end else self._model._ends)]
        return self._sequences.add(prompt, tokens, (temperature, top_k, top_p), seed, is_text, stop, ends, number,
                                   logprobs=-1 if logprobs is None else logprobs)

    @takes(request=whole())
    def cancel(self, request):
        """Ends a request; its slot is free. Returns whether it had not ended yet."""
        return self._sequences.cancel(request)

    def step(self):
        """Appends a token to each sequence that has a slot, or several while no request waits and none asks for logprobs.
        Returns a list of tokens of requests whose prompts are through: (request, id, text, finish, logprobs), with the text
        that is known since the one before, and the reason of the last one, else None: "stop" (the id that ends documents, one
        of `stop_ids`, a text of `stop`), "length", or "not finite", where there is no id to draw. `logprobs` are
        (id, log-probability): of the id, then of the most likely ones."""
        return self._sequences.step()
