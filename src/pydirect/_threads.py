"""How many threads run, asked anew at every call so that OMP_NUM_THREADS and threadpoolctl work."""

from __future__ import annotations

import functools
from typing import Any

from pydirect import _core
from pydirect._validation import as_count


def resolve_n_threads(n_threads: int | None) -> int:
    """Return the number of threads: the argument, else what OpenMP says now."""
    return _core.default_threads() if n_threads is None else as_count(n_threads, "n_threads")


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 (brings a BLAS of its own, which must be loaded to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def single_blas_thread() -> Any:
    """Context in which BLAS runs on one thread.

    Parallelism is ours, over fixed blocks combined in order, so that results have the same bits for any number of
    threads; and BLAS threads spinning beside them would only slow them down.
    """
    return _controller().limit(limits=1, user_api="blas")
