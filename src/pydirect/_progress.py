"""Progress of long fits: times of stages on standard error, and a bar over rows if tqdm is installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
