"""Numbers of threads, resolved at every call so that OMP_NUM_THREADS and threadpoolctl take effect."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from pydirect import _core
from pydirect._validation import as_count

# More threads than this and than CPUs only cost memory; results do not depend on their number.
MOST_THREADS = 64

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


_CURRENT: ContextVar[int | None] = ContextVar("n_threads", default=None)


def resolve_n_threads(n_threads: int | None = None) -> int:
    """Return `n_threads`, capped at `MOST_THREADS` or the number of CPUs; by default that of `threads` or OpenMP's."""
    if n_threads is None:
        return _CURRENT.get() or _core.default_threads()
    if as_count(n_threads, "n_threads") >= 2**31:
        raise ValueError(f"n_threads must fit into 32 bits, got {n_threads}")
    if n_threads <= MOST_THREADS:
        return int(n_threads)  # counting the CPUs takes longer than many calls
    return min(int(n_threads), max(MOST_THREADS, os.cpu_count() or 1))


class _SingleBlasThread(ContextDecorator):
    """Context, or decorator, shared by the whole process: the first entry limits BLAS, the last exit restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._libraries: list[Any] | None = None
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._libraries is None:
                import scipy.linalg  # noqa: F401 (has its own BLAS, which must be loaded to be found)
                from threadpoolctl import ThreadpoolController

                controllers = ThreadpoolController().lib_controllers
                self._libraries = [library for library in controllers if library.user_api == "blas"]
            if self._inside == 0:
                self._before = [library.get_num_threads() for library in self._libraries]
                self._set([1] * len(self._before))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._set(self._before)

    def _set(self, numbers: list[int]) -> None:
        assert self._libraries is not None
        for library, number, before in zip(self._libraries, numbers, self._before, strict=True):
            if before != 1:
                library.set_num_threads(number)


_SHARED = _SingleBlasThread()


def single_blas_thread() -> _SingleBlasThread:
    """Return a context in which BLAS runs on one thread.

    Our threads run over fixed blocks combined in order, so that results have the same bits for any number of threads;
    spinning BLAS threads would only slow them down.
    """
    return _SHARED


@contextmanager
def threads(n_threads: int | None) -> Iterator[int]:
    """Set the number of threads of everything inside, and keep BLAS on one: what public methods do first, once."""
    token = _CURRENT.set(resolve_n_threads(n_threads))
    try:
        with _SHARED:
            yield _CURRENT.get() or 1
    finally:
        _CURRENT.reset(token)


def raise_if_set(stop: threading.Event) -> None:
    """Interrupt this thread too when the user has interrupted another."""
    if stop.is_set():
        raise KeyboardInterrupt


def _inside(n_workers: int) -> Context:
    """Return a copy of the caller's context, in which each of the workers has its share of the threads."""
    context = copy_context()
    context.run(_CURRENT.set, max(1, resolve_n_threads() // n_workers))
    return context


def for_each(
    task: Callable[[_Item], _Result], items: Sequence[_Item], n_workers: int, stop: threading.Event
) -> list[_Result]:
    """Call `task` for each item on several threads.

    A KeyboardInterrupt reaches only the waiting thread: it sets `stop`, which tasks check. Tasks run in the context of
    the caller, as far as warnings are ignored there.
    """
    if n_workers == 1 or len(items) <= 1:
        with single_blas_thread():  # as beside other tasks, which may be inside it or not
            return list(map(task, items))
    with single_blas_thread(), ThreadPoolExecutor(n_workers) as pool:
        futures: list[Future[_Result]] = []
        try:
            futures.extend(pool.submit(_inside(n_workers).run, task, item) for item in items)
            wait(futures)
        except KeyboardInterrupt:
            stop.set()
        return [future.result() for future in futures]


def ordered_map(function: Callable[[_Item], _Result], items: Iterator[_Item], n_threads: int) -> Iterator[_Result]:
    """Map on several threads with at most `n_threads` items in flight; yield results in order, up to a failure."""
    if n_threads == 1:
        yield from map(function, items)
        return
    failure: BaseException | None = None
    with ThreadPoolExecutor(n_threads) as pool:
        pending: list[Future[_Result]] = []
        while failure is None:
            try:
                pending.append(pool.submit(_inside(n_threads).run, function, next(items)))
            except StopIteration:
                break
            except BaseException as error:  # raised below, after all earlier results
                failure = error
            if len(pending) == n_threads:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()
    if failure is not None:
        raise failure
