"""Instructions of a dozen calls in compiled code, by Callgrind, beside `instructions.json`: a gate that no load moves.

    python bench/instructions.py              # fails if a call takes 3 % more instructions than it did
    python bench/instructions.py --write      # makes the counts of this tree the ones to compare with

Needs valgrind with its headers and a C compiler (Debian: `apt-get install valgrind gcc`), and takes a few minutes. Only
instructions of `pydirect`'s own modules count, with AVX2 kernels and one thread, so that neither Python's nor NumPy's
version matters; another compiler does, and is named where counts differ.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BASELINE, TOLERANCE = Path(__file__).with_suffix(".json"), 0.03
REQUESTS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char* name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of calls, and each with its arguments; what is prepared here is not counted."""
    import numpy as np

    from pydirect import DirectClassifier, DirectRegressor, DirectStreamRegressor, Nystroem
    from pydirect._dense import cholesky, gram, product
    from pydirect.monte_carlo import MonteCarloDivergence
    from pydirect.networks import DeterministicNetwork, NetworkObjective

    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 5))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(400)
    a = rng.standard_normal((200, 200))
    yield "product", lambda: product(a, a)
    yield "gram", lambda: gram(a)
    spd = gram(a) + 200 * np.eye(200)
    yield "cholesky", lambda: cholesky(spd, 1)
    given: dict[str, Any] = {"features": Nystroem(length_scale=1.0), "local": False, "n_threads": 1}
    own = DirectRegressor(n_basis_functions=100, noise="constant", **given)
    yield "fit, given kernel", lambda: own.fit(x, y)
    own.fit(x, y)
    yield "predict", lambda: own.predict(x)
    yield "predict with deviations", lambda: own.predict(x, return_std=True)
    yield "fit, learned kernel", lambda: DirectRegressor(n_threads=1).fit(x[:30], y[:30])
    discrete = DirectRegressor(n_basis_functions=30, posterior="mean_field", noise="constant", **given)
    yield "fit, mean field", lambda: discrete.fit(x, y)
    sequential = DirectRegressor(n_basis_functions=30, posterior="sequential", noise="constant", **given)
    yield "fit, sequential", lambda: sequential.fit(x, y)
    classes = DirectClassifier(n_basis_functions=30, features=Nystroem(length_scale=1.0), n_threads=1)
    yield "fit, classes", lambda: classes.fit(x[:100], y[:100] > 0)
    stream = DirectStreamRegressor(n_basis_functions=60, n_first_rows=100, n_threads=1).fit(x[:150], y[:150])
    yield "stream, 50 rows", lambda: [stream.predict_then_learn(x[i : i + 1], y[i : i + 1]) for i in range(150, 200)]
    network = DeterministicNetwork(5, (20, 20))
    objective = NetworkObjective(network, x[:50], y[:50])
    theta = network.initial_parameters(rng)
    yield "network, one step", lambda: objective(theta, n_threads=1)
    kl = MonteCarloDivergence("laplace", "logistic", "naive", 500, 20, n_threads=1)
    yield "divergence, naive", lambda: kl.value_and_grad(np.ones((2, 20)))
    small = sequential.fit(x, y).quantize(16, X=x)
    yield "predict, integers", lambda: small.predict(x)


def run(library: str) -> None:
    """Make the calls in this process, under Callgrind; each twice, the second counted."""
    requests = ctypes.CDLL(library)
    for name, call in calls():
        call()
        requests.begin()
        call()
        requests.end(name.encode())


def object_of(line: str) -> tuple[str, str]:
    """Number and name of the object file that a line names; one of them may be empty."""
    number, _, name = line.partition("=")[2].partition(" ")
    return (number, name) if number.startswith("(") else ("", line.partition("=")[2])


def own_instructions(dump: str) -> int:
    """Instructions of our modules in a dump of Callgrind, without those of what they call."""
    names: dict[str, str] = {}
    total, ours, of_call = 0, False, False
    for line in dump.splitlines():
        if line.startswith("ob="):
            number, name = object_of(line)
            name = names.setdefault(number, name) if number else name
            ours = "/pydirect/" in name
        elif line.startswith("calls="):
            of_call = True
        elif line[:1] in "+-*0123456789" and line:
            total += 0 if of_call or not ours else int(line.split()[1])
            of_call = False
        elif line.startswith("cob="):
            number, name = object_of(line)
            if number and name:
                names.setdefault(number, name)
    return total


def count() -> dict[str, int]:
    """Instructions of every call, from a process under Callgrind."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "requests.c"), Path(folder, "requests.so")
        source.write_text(REQUESTS)
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        fixed = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        fixed |= {"PYTHONHASHSEED": "0", "OPENBLAS_CORETYPE": "Haswell", "PYDIRECT_ISA": "x86_64_v3"}
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, __file__, "--run", str(library)]
        subprocess.run(command, check=True, env=os.environ | fixed, stderr=subprocess.DEVNULL)
        found = {}
        for path in sorted(Path(folder).glob("out.*"), key=lambda each: int(each.suffix[1:])):
            dump = path.read_text(errors="replace")
            trigger = re.search(r"^desc: Trigger: Client Request: (.*)$", dump, re.M)
            if trigger:
                found[trigger[1]] = own_instructions(dump)
        return found


def main() -> None:
    """Count, compare or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the counts in place of comparing them")
    parser.add_argument("--run", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        return run(arguments.run)
    from pydirect import _core

    found, compiler = count(), _core.build_config()["compiler"]
    if arguments.write:
        BASELINE.write_text(json.dumps({"compiler": compiler, "instructions": found}, indent=1) + "\n")
    before = json.loads(BASELINE.read_text())
    known = before["instructions"]
    for name, n in found.items():
        print(f"{name:28s}{n:16,d}{n / known[name] - 1 if name in known else 0:+9.2%}")
    worse = [name for name, n in found.items() if n > (1 + TOLERANCE) * known.get(name, n)]
    if worse or found.keys() != known.keys():
        reason = "" if compiler == before["compiler"] else f" (counted with {before['compiler']}, here {compiler})"
        raise SystemExit(f"more instructions than before, or other calls: {worse or sorted(found)}{reason}")


if __name__ == "__main__":
    main()
