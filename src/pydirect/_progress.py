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
    """Timer of the stages of a fit, which reports them if `verbose`."""

    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and report it when it ends."""
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        if self.verbose:
            print(f"  {name:<16s} {self.seconds[name]:7.2f} s", file=sys.stderr, flush=True)

    @contextmanager
    def stream(self, total: int | None, start: int = 0) -> Iterator[Callable[[int], None]]:
        """Yield a function that reports speed and remaining time when called with the number of finished rows.

        `total`: total number of rows, if known. `start`: number of rows finished by an earlier run.
        """
        begin = said = time.perf_counter()
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
    def rows(self, total: int) -> Iterator[Callable[[int, int], None] | None]:
        """Yield a callback for `collect_statistics` that updates a tqdm bar, or None."""
        bar: Any = None
        if self.verbose and total > 100_000:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                pass
            else:
                form = {"unit": "row", "unit_scale": True, "desc": "  statistics", "leave": False}
                bar = tqdm(total=total, disable=None, **form)  # None: unless standard error is a terminal
        if bar is None:
            yield None
            return
        with bar:
            yield lambda done, _: bar.update(done - bar.n)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
