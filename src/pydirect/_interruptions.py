"""Deferred Ctrl-C, which must not interrupt an update halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
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
