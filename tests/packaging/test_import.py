"""What importing the package does, and what it leaves alone; each in an interpreter of its own."""

import os
import subprocess
import sys

import pytest

from pydirect import _core


def run(code, timeout=60, **environment):
    """Run code in a fresh interpreter; returns the completed process."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def output(code, **environment):
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


HEAVY = ["sklearn", "matplotlib", "pandas", "polars", "pyarrow", "tqdm", "scipy.stats"]


def test_importing_pydirect_imports_nothing_heavy():
    statements = "import sys, pydirect; dir(pydirect); from pydirect import _core"
    assert output(f"{statements}\nprint([m for m in {HEAVY} if m in sys.modules])") == "[]"


def test_the_layers_below_the_estimators_know_nothing_of_scikit_learn():
    heavy = ["sklearn", "matplotlib", "pandas", "scipy.stats"]
    layers = ["_random", "distributions", "features.maps", "optimize.quadratic", "direct.mixture", "statistics.running"]
    imports = "; ".join(f"import pydirect.{layer}" for layer in [*layers, "testing"])
    assert output(f"{imports}\nimport sys\nprint([m for m in {heavy} if m in sys.modules])") == "[]"


def test_every_room_can_be_imported_first():
    """Importing any module imports its room before, so that these are all the orders that there are."""
    code = """
import pkgutil, sys, pydirect
failed = []
for room in pkgutil.iter_modules(pydirect.__path__, "pydirect."):
    if not room.name.endswith("__main__"):
        for name in [n for n in sys.modules if n.startswith("pydirect.")]:
            if name not in ("pydirect._core", "pydirect._random"):  # compiled modules load once
                del sys.modules[name]
        try:
            __import__(room.name)
        except Exception as error:
            failed.append((room.name, repr(error)))
print(failed)
"""
    assert output(code) == "[]"


# Instruction sets


def test_an_impossible_instruction_set_fails_at_import_with_the_reason():
    done = run("import pydirect._core", PYDIRECT_ISA="nonsense")
    assert done.returncode != 0
    assert "PYDIRECT_ISA must be one of 'baseline'" in done.stderr
    assert "on this build and CPU, got 'nonsense'" in done.stderr


@pytest.mark.parametrize("level", _core.isa_levels())
def test_every_supported_instruction_set_can_be_forced(level):
    code = """
import numpy as np
from pydirect import _core
print(_core.build_config()["isa"], _core.exp(np.zeros(3)).tolist())
"""
    assert output(code, PYDIRECT_ISA=level) == f"{level} [1.0, 1.0, 1.0]"


def test_the_widest_instruction_set_is_the_default():
    code = "from pydirect import _core; print(_core.build_config()['isa'] == _core.isa_levels()[-1])"
    assert output(code, PYDIRECT_ISA="") == "True"


# Neighbours


def test_importing_does_not_change_the_floating_point_environment():
    code = """
import numpy as np
smallest = np.array([5e-324, 2.5e-310])
before = (smallest * 1.0).tolist(), (smallest / 3.0).tolist(), np.geterr()
import pydirect, pydirect._core, pydirect._random, pydirect.direct.mean_field, pydirect.linear.fit
pydirect._core.exp(np.full(100, -707.9))
assert before == ((smallest * 1.0).tolist(), (smallest / 3.0).tolist(), np.geterr())
assert (smallest * 1.0)[0] == 5e-324
import threading
flushed = []
thread = threading.Thread(target=lambda: flushed.append(float(np.float64(5e-324) * 1.0)))
thread.start(); thread.join()
print(flushed[0])
"""
    assert output(code) == "5e-324"


def test_importing_does_not_touch_the_random_state_or_the_warnings():
    code = """
import random, warnings, numpy as np, scipy.linalg, scipy.optimize, scipy.special
state, legacy, filters = random.getstate(), np.random.get_state()[1].tolist(), list(warnings.filters)
import pydirect.direct.mean_field, pydirect.testing
print(state == random.getstate(), legacy == np.random.get_state()[1].tolist(), filters == list(warnings.filters))
"""
    assert output(code) == "True True True"


FORK = """
import os, signal, sys, warnings
import numpy as np
from pydirect import _core

def work(n_threads):
    rows, out = np.ones((2000, 50)), np.empty((2, 2000))
    _core.row_moments(rows, np.ones(50), np.ones(50), out[0], out[1], n_threads)
    return out.sum()

expected = work(2)
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of fork in a process with threads
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if work(2) == expected and work(3) == expected else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), work(2) == expected)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_after_threads_were_used_computes_and_ends():
    assert output(FORK) == "0 True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_pool_of_forked_workers_fits_models():
    code = """
import multiprocessing, warnings
import numpy as np
from pydirect.direct.sequential import fit_sequential
from pydirect.statistics.gaussian import GaussianStatistics

rng = np.random.default_rng(0)
phi = rng.standard_normal((900, 600))
statistics = GaussianStatistics.from_arrays(phi, phi[:, 0] + rng.standard_normal(900))

def fit(seed):
    return fit_sequential(statistics, 1.0, n_threads=2, random_state=seed).elbo

expected = fit(0)
warnings.simplefilter("ignore", DeprecationWarning)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(fit, [0, 0]).get(timeout=50) == [expected, expected])
"""
    assert output(code) == "True"
