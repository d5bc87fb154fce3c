"""Memory of the engines of quadratic networks: what they claim and what they take."""

import subprocess
import sys
from pathlib import Path

import pytest

from pydirect import _core


def memory_of(code):
    """Bytes that `code` leaves resident, in a new process, so that no memory freed before is used again."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc/self/statm on this system")
    script = f"""
import os
import numpy as np
from pydirect import _core

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def engine_and_table(kind, n_inputs, hidden, n):
    engine = _core.NetworkEngine(kind, n_inputs, hidden, False, np.ones((n, n_inputs)), np.ones(n), None)
    return engine, np.zeros(_core.network_table_size(n_inputs, hidden, False))

before = resident()
{code}
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(("n_inputs", "hidden"), [(40, [1200]), (8, [300, 300])])
def test_the_cost_counts_the_memory_of_all_groups_and_workers(n_inputs, hidden):
    n = 2100  # five groups of rows
    used = memory_of(
        f"engine, table = engine_and_table('datum', {n_inputs}, {hidden}, {n}); engine.evaluate(table, None, 5)"
    )
    claimed = _core.network_cost("datum", n_inputs, hidden, False, n)[1]
    assert claimed / 1.4 < used < 1.1 * claimed


def test_memory_of_the_sums_of_groups_is_bounded():
    """Wide layers have few groups: beyond some number, more rows take no more memory."""
    few, many = (_core.network_cost("datum", 10, [1500, 1500], True, n)[1] for n in (10**4, 10**6))
    assert many == few < 2 * 2**30


@pytest.mark.parametrize(("kind", "hidden"), [("tensor", [200]), ("datum", [200]), ("datum", [60, 60])])
def test_threads_without_work_take_no_memory(kind, hidden):
    used = memory_of(
        f"engine, table = engine_and_table({kind!r}, 4, {hidden}, 5); rows = np.ones((5, 4)); out = np.ones(5)\n"
        "engine.predict(table, rows, out, out.copy(), 300); engine.evaluate(table, table.copy(), 300)"
    )
    assert used < 5e7
