"""Progress of long fits on standard error, and deferred Ctrl-C, which must not interrupt an update halfway."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """A request by Ctrl-C to stop at the next safe point."""

    def __init__(self) -> None:
        self.requested, self.busy = False, False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context without interruptions, however often they are requested."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def raise_if_requested(self) -> None:
        """Raise KeyboardInterrupt if an interruption was requested."""
        if self.requested:
            self.requested = False
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupt() -> Iterator[Interruption]:
    """Turn Ctrl-C into a request; a second one raises, except inside `held`."""
    interruption = Interruption()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interruption
        return

    def request(number: int, frame: Any) -> None:
        if interruption.requested and not interruption.busy:
            before(number, frame)
        interruption.requested = True

    signal.signal(signal.SIGINT, request)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)
    if interruption.requested:  # and not yet raised
        before(signal.SIGINT, None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of the context."""
    with deferred_interrupt() as interruption, interruption.held():
        yield


SECONDS_BETWEEN_REPORTS = 2.0
# What is not a terminal keeps every line.
SECONDS_BETWEEN_LOGGED_REPORTS = 60.0


class Progress:
    """Timer of the stages of a fit, which reports them if `verbose`, those of more than two seconds as they go on."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.seconds: dict[str, float] = {}
        self._state: str | None = ""  # of the stage that goes on; None while it reports itself
        self._ended: str | None = None  # the stage that ended last and may go on

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage, which is reported when another begins."""
        begin, ended = time.perf_counter(), threading.Event()
        self._state = ""
        if self._ended != name:
            self.finish()
        if self.verbose:
            watch = threading.Thread(target=self._watch, args=(name, begin, ended), daemon=True)
            watch.start()
        try:
            yield
        finally:
            ended.set()
            if self.verbose:
                watch.join()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        self._ended = name

    def finish(self) -> dict[str, float]:
        """Report the stage that ended last; return the seconds of all."""
        if self.verbose and self._ended is not None:
            self._say(f"{self._ended:<16s} {self.seconds[self._ended]:7.2f} s", "\n")
        self._ended = None
        return self.seconds

    def _watch(self, name: str, begin: float, ended: threading.Event) -> None:
        """Say every two seconds how long a stage has taken; where lines stay, ever less often."""
        pause, end = SECONDS_BETWEEN_REPORTS, "\r" if sys.stderr.isatty() else "\n"
        while not ended.wait(pause):
            if self._state is not None:
                self._say(f"{name:<16s} {time.perf_counter() - begin:7.1f} s so far{self._state}", end)
            pause *= 2 if end == "\n" else 1

    @staticmethod
    def _say(text: str, end: str) -> None:
        width = 78 if sys.stderr.isatty() else 0  # over a longer line
        print(f"  {text:<{width}s}", end=end, file=sys.stderr, flush=True)

    @contextmanager
    def stream(self, total: int | None, start: int = 0) -> Iterator[Callable[[int], None]]:
        """Yield a function that reports speed and remaining time when called with the number of finished rows.

        `total`: total number of rows, if known. `start`: number of rows finished by an earlier run.
        """
        begin = said = time.perf_counter()
        self._state = None
        seconds = SECONDS_BETWEEN_REPORTS if sys.stderr.isatty() else SECONDS_BETWEEN_LOGGED_REPORTS

        def report(done: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if not self.verbose or now - said < seconds:
                return
            said = now
            rate = (done - start) / (now - begin)
            left = "" if total is None else f" of {total:,}, {_duration((total - done) / rate)} left"
            print(f"  {done:,} rows{left}, {rate:,.0f} rows/s", file=sys.stderr, flush=True)

        yield report

    @contextmanager
    def rows(self, total: int, unit: str = "rows") -> Iterator[Callable[[int, int], None] | None]:
        """Yield a callback that notes which share of the rows, or iterations, is done, or None."""

        def note(done: int, _: int) -> None:
            self._state = f", {done / total:.0%} of {total:,} {unit}"

        yield note if self.verbose else None
        self._state = ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
