"""A thread that runs a scheduler for requests of an event loop."""

import asyncio
import contextlib
import itertools
import queue
import threading

from nsa._runtime import RunError


class Engine:
    """Runs the steps of a scheduler, which is the engine's alone."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self._orders = queue.SimpleQueue()
        self._tickets = itertools.count()
        # By the number of a request: its ticket and what takes its tokens.
        self._going = {}
        self._thread = threading.Thread(target=self._run, name="nsa-serve", daemon=True)
        self._thread.start()

    def close(self):
        """Ends the thread after the step that it is in."""
        self._orders.put(None)
        self._thread.join()

    async def generate(self, prompt, options):
        """The tokens of a request, as Scheduler.step has them; who leaves early cancels it."""
        loop, tokens, ticket = asyncio.get_running_loop(), asyncio.Queue(), next(self._tickets)

        def give(token):
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(tokens.put_nowait, token)
        self._orders.put((ticket, prompt, options, give))
        try:
            while True:
                token = await tokens.get()
                if isinstance(token, Exception):
                    raise token
                yield token
                if token.finish:
                    return
        finally:
            self._orders.put((ticket, None, None, None))

    def _run(self):
        try:
            while self._follow():
                for token in self._scheduler.step():
                    _, give = self._going[token.request]
                    if token.finish:
                        del self._going[token.request]
                    give(token)
        except Exception as error:
            # Nothing runs any more: all learn why.
            for _, give in self._going.values():
                give(error)
            self._cancel(self._going)
            while (order := self._orders.get()) is not None:
                if order[3]:
                    order[3](RunError(f"the program has failed: {error}"))
        self._cancel(self._going)

    def _cancel(self, requests):
        for request in list(requests):
            self._scheduler.cancel(request)
            del self._going[request]

    def _follow(self):
        """Adds and cancels what was asked for; waits while there is nothing to do. Returns whether to go on."""
        while not self._going or not self._orders.empty():
            order = self._orders.get()
            if order is None:
                return False
            ticket, prompt, options, give = order
            if give:
                try:
                    self._going[self._scheduler.add(prompt, **options)] = ticket, give
                except Exception as error:
                    give(error)
                continue
            self._cancel(request for request, (own, _) in self._going.items() if own == ticket)
        return True
