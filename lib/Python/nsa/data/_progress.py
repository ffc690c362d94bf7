"""A progress bar on the terminal."""

import sys
import time


class Progress:
    """Prints a bar on a terminal, and nothing elsewhere."""

    def __init__(self, total, shown=True, stream=sys.stderr):
        self.total = total
        self.stream = stream
        self.shown = shown and stream.isatty()
        self.begin = time.monotonic()
        self.first = None

    def update(self, done, tokens):
        if not self.shown:
            return
        seconds = time.monotonic() - self.begin
        # Units that were done before cost nothing now.
        self.first = (done, tokens) if self.first is None else self.first
        part = done / max(self.total, 1)
        now = done - self.first[0]
        left = f"{(self.total - done) * seconds / now:.0f} s left" if now else ""
        bar = ("#" * round(30 * part)).ljust(30)
        speed = (tokens - self.first[1]) / max(seconds, 1e-9)
        self.stream.write(f"\r[{bar}] {100 * part:3.0f} % {tokens:,} tokens {speed:,.0f}/s {left}   ")
        self.stream.flush()

    def finish(self):
        if self.shown:
            self.stream.write("\n")
