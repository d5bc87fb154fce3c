"""pydirect beside its peers: accuracy, calibration and seconds on the same rows, in one run.

    pip install "pydirect[bench]"
    PYDIRECT_DATA=... python bench/peers/run.py                       # hours; goes on where an earlier run stopped
    python bench/peers/run.py --sets diabetes,friedman1 --folds 5     # without data files
    python bench/peers/run.py --report                                # the tables of the figures that are there
    python bench/peers/run.py --report --docs                         # and into docs/, with the picture

UCI data with the folds of their papers, from the sixth on: earlier ones were seen when defaults were chosen. Three of
Friedman's problems (500 rows, 1000 for the test, a fold is a seed) and diabetes come with scikit-learn. A peer that is
not installed is left out, with a hint. `models.py` has every peer's settings.

Each fit has a process of its own with one thread, `--limit` seconds of processor time and `--memory` GiB; a model that
reaches either is not tried on larger sets. Seconds are processor time; those of prediction include a
90 % interval for every test row.

Columns: RMSE; NLPD, the mean negative log predictive density in nats; CRPS; interval score (Gneiting and Raftery 2007)
and coverage of central 90 % intervals; seconds of the fit and of predicting all test rows. Scores are in the target's
units, means over folds. NLPD and CRPS of a quantile model are those of the Gaussian with its median as
the mean and with the width of its 90 % interval.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
RESULTS = HERE / "results.json"
LEVEL = 0.9
PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "catboost", "ngboost", "torch", "gpytorch", "gpboost")


# --- one fit, in a process of its own


def measure(name: str, fold: int, model: str) -> dict[str, float]:
    """Fit, predict and score."""
    import numpy as np
    from models import MODELS
    from problems import rows_of

    from pydirect.metrics import coverage, interval_score

    warnings.simplefilter("ignore")
    x, y, x_test, y_test = rows_of(name, fold)
    fit, packages = MODELS[model]
    for package in packages:
        importlib.import_module(package)
    begin = time.process_time()
    predict = fit(x, y)
    fitted = time.process_time()
    found = predict(x_test)
    lower, upper = found.interval(LEVEL)
    predicted = time.process_time()
    return {
        "rows": len(y),
        "columns": x.shape[1],
        "rmse": float(np.sqrt(np.mean((found.mean - y_test) ** 2))),
        "nlpd": -float(found.log_density(y_test).mean()),
        "crps": float(found.crps(y_test).mean()),
        "interval_score": interval_score(y_test, lower, upper, LEVEL),
        "coverage": coverage(y_test, lower, upper),
        "fit_seconds": fitted - begin,
        "predict_seconds": predicted - fitted,
    }


def work(name: str, fold: int, model: str, limit: float, memory: float) -> None:
    """Print the scores of one fit, within the limits."""
    try:
        import resource
    except ImportError:  # Windows
        print(json.dumps(measure(name, fold, model)))
        return
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory * 2**30),) * 2)
    try:
        print(json.dumps(measure(name, fold, model)))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "alloc" in str(error):
            sys.exit("out of memory")
        raise


# --- the run


def attempt(name: str, fold: int, model: str, limit: float, memory: float) -> dict[str, Any]:
    """Return the record of one fit: scores, or why there are none."""
    record: dict[str, Any] = {"set": name, "fold": fold, "model": model}
    command = [sys.executable, str(HERE / "run.py"), "--work", name, str(fold), model]
    command += ["--limit", str(limit), "--memory", str(memory)]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        return record | {"status": "ok"} | json.loads(done.stdout.splitlines()[-1])
    if done.returncode in (-24, -9, 152, 137):  # SIGXCPU, and SIGKILL soon after it
        return record | {"status": "time"}
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if "out of memory" in last or "bad_alloc" in last or "MemoryError" in last:
        return record | {"status": "memory"}
    return record | {"status": "failed", "error": last[:300]}


def machine() -> dict[str, Any]:
    """Return the processor, and the versions of what is compared."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), processor)
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": f"{processor}, {os.cpu_count()} logical cores, of which one thread is used",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": versions,
    }


def load(path: Path) -> dict[str, Any]:
    """Return what is there."""
    return json.loads(path.read_text()) if path.exists() else {"results": []}


def save(path: Path, found: dict[str, Any]) -> None:
    """Write a file with a line per fit."""
    head = {key: value for key, value in found.items() if key != "results"}
    lines = ",\n".join(json.dumps(record) for record in found["results"])
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(head, indent=1)[:-2] + ',\n "results": [\n' + lines + "\n]}\n")
    temporary.replace(path)


def installed(models: list[str]) -> list[str]:
    """Return the models whose packages are there; say what is missing."""
    from models import MODELS

    usable = []
    for model in models:
        missing = [name for name in MODELS[model][1] if importlib.util.find_spec(name) is None]
        if missing:
            print(f'{model} is left out: pip install {" ".join(missing)}, or "pydirect[bench]"', flush=True)
        else:
            usable.append(model)
    return usable


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run what is not there yet, a fold of all sets after the other, small sets first."""
    from models import FEWEST_ROWS
    from problems import SIZES

    found = load(arguments.results)
    found |= {"machine": machine(), "limits": {"seconds": arguments.limit, "gibibytes": arguments.memory}}
    there = {(r["set"], r["fold"], r["model"]) for r in found["results"]}
    names = sorted(arguments.sets, key=SIZES.__getitem__)
    for fold in range(arguments.first_fold, arguments.first_fold + arguments.folds):
        for name in names:
            if fold > arguments.first_fold and SIZES[name] > arguments.one_fold_above:
                continue
            for model in arguments.models:
                if (name, fold, model) in there:
                    continue
                failed = [r["set"] for r in found["results"] if r["model"] == model and r["status"] in TOO_LARGE]
                smaller = [s for s in failed if SIZES[s] <= SIZES[name]]
                if SIZES[name] < FEWEST_ROWS.get(model, 0):
                    record = {"set": name, "fold": fold, "model": model, "status": "few rows"}
                elif smaller:
                    record = {"set": name, "fold": fold, "model": model, "status": "left out", "since": smaller[0]}
                else:
                    record = attempt(name, fold, model, arguments.limit, arguments.memory)
                found["results"].append(record)
                save(arguments.results, found)
                print(line_of(record), flush=True)
    return found


TOO_LARGE = ("time", "memory")


def line_of(record: dict[str, Any]) -> str:
    """Return a line of progress."""
    start = f"{record['set']:11s} {record['fold']:2d} {record['model']:20s}"
    if record["status"] != "ok":
        return f"{start} {record['status']} {record.get('error', record.get('since', ''))}"
    scores = " ".join(f"{record[key]:10.4g}" for key in ("rmse", "nlpd", "crps", "interval_score", "coverage"))
    return f"{start} {scores}  {record['fit_seconds']:7.2f} s {record['predict_seconds']:7.3f} s"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", help="comma-separated names; all by default")
    parser.add_argument("--models", help="comma-separated names; all by default")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--first-fold", type=int, default=5)
    parser.add_argument("--one-fold-above", type=int, default=5000, metavar="ROWS", help="larger sets get one fold")
    parser.add_argument("--limit", type=float, default=150.0, help="processor seconds of a fit and its predictions")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="JSON")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    parser.add_argument("--docs", action="store_true", help="write tables and picture into docs/")
    parser.add_argument("--work", nargs=3, metavar=("SET", "FOLD", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        name, fold, model = arguments.work
        work(name, int(fold), model, arguments.limit, arguments.memory)
        return
    if arguments.report:
        found = load(arguments.results)
    else:
        for variable in THREADS:
            os.environ.setdefault(variable, "1")
        from models import MODELS
        from problems import SIZES

        arguments.sets = arguments.sets.split(",") if arguments.sets else list(SIZES)
        arguments.models = installed(arguments.models.split(",") if arguments.models else list(MODELS))
        found = run(arguments)
    import report

    print(report.tables(found))
    if arguments.docs:
        report.write_docs(found)


if __name__ == "__main__":
    main()
