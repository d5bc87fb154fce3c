"""Ctrl-C, which must not strike in the middle of a sum."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """What has become of Ctrl-C: a request to stop at the next good moment."""

    def __init__(self) -> None:
        self.requested, self.busy = False, False

    @contextmanager
    def held(self) -> Iterator[None]:
        """In here nothing is interrupted, however often it is asked for."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def raise_if_requested(self) -> None:
        """Stop here, if that was asked for."""
        if self.requested:
            self.requested = False
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupt() -> Iterator[Interruption]:
    """Let Ctrl-C be a request instead of an exception in the middle of a sum; a second one raises, outside of sums."""
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
    if interruption.requested:  # and nobody has raised: it is not forgotten
        before(signal.SIGINT, None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the end."""
    with deferred_interrupt() as interruption, interruption.held():
        yield
