"""Cost of a KL divergence and its gradient by Monte Carlo: modes of pydirect beside PyTorch on the CPU.

    python bench/scripts/monte_carlo.py [--draws 1 10 100 1000 10000] [--weights 1000 100000 1000000] [--threads 1]

A normal posterior and a normal prior, D weights, M fresh draws a weight in every step. Modes:

    exact          by expected powers: no draws
    direct         sums drawn from their own law: a normal and a chi-square number per weight
    fixed          sums of draws of the first step: what every further step costs
    shared         one set of M draws for all weights
    independent    M draws a weight, reduced to two sums as they are made
    naive          value and gradient draw by draw, nothing stored
    torch loop     a loop over draws, automatic differentiation through all of them
    torch vector   all draws in one array, automatic differentiation
    torch sums     a loop that adds up two sums without gradients, automatic differentiation of the sums' polynomial

Milliseconds of a step are medians. They are split for our sampled modes: "gradient" is value and gradient from sums (or
the whole second pass over the draws that `naive` makes); "reduce" is measured as what two more sums cost; "draw" is the
rest. Peak extra bytes are what the resident set grew by at its highest (Linux), in units of D float64 numbers too.

What to read from it: with fresh draws a step costs D·M draws whatever is done with them, so that `independent` gains
nothing over `naive` in our own code; it gains memory and time against graphs of automatic differentiation. The modes
that gain are those that need fewer draws: fixed, shared, direct, exact.

Cases of more than --most-draws draws a step, and PyTorch graphs of more than --most-bytes, are left out and say so.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import time

MODES = ("exact", "direct", "fixed", "shared", "independent", "naive")
TORCH = ("torch loop", "torch vector", "torch sums")


def parse_arguments():
    """Read the command line, and limit the threads of libraries that ask for them when they are loaded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 10, 100, 1000, 10_000])
    parser.add_argument("--weights", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="spent on one figure, three steps at least")
    parser.add_argument("--most-draws", type=float, default=2e9, help="D·M beyond which a case is left out")
    parser.add_argument("--most-bytes", type=float, default=2e9, help="of a PyTorch graph")
    parser.add_argument("--no-torch", action="store_true")
    arguments = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(arguments.threads)
    return arguments


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()

import numpy as np  # noqa: E402

from pydirect.monte_carlo.divergence import MonteCarloDivergence  # noqa: E402

PRIOR = ("normal", 0.0, 1.0)
# Four sums instead of two.
QUARTIC = ("polynomial", ((0.0, 0.0, -0.5, 0.0, -0.01),))


def median_milliseconds(step, limit):
    """Median time of a step, after one to warm up unless that took long; three steps at least, or one beyond 10 s."""
    times = []
    begin = time.perf_counter()
    while not times or (times[0] < 10.0 and (len(times) < 4 or time.perf_counter() - begin < limit)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[1:] or times))


def resident(key):
    """Return VmRSS or VmHWM of this process in bytes, or None where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(key))
    except (OSError, StopIteration):
        return None


def peak_extra_bytes(step):
    """Return by how much the resident set grew at its highest while a step ran."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # give back what earlier cases left, or it would hide what this one takes
    except (AttributeError, OSError):
        return None
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # forget the peak so far
    except OSError:
        return None
    before = resident("VmRSS")
    step()
    peak = resident("VmHWM")
    return None if before is None or peak is None else max(0, peak - before)


def our_step(mode, n_draws, n_weights, prior=PRIOR):
    """Return functions: a whole step, and its value and gradient alone."""
    kl = MonteCarloDivergence("normal", prior, mode, n_draws, n_weights)
    parameters = np.stack([np.full(n_weights, 0.1), np.full(n_weights, 0.5)])

    def gradient():
        return kl.value_and_grad(parameters)

    def step():
        kl.resample()
        return gradient()

    return step, gradient


def our_case(mode, n_draws, n_weights, limit):
    """Return milliseconds: all, draw, reduce, gradient."""
    step, gradient = our_step(mode, n_draws, n_weights)
    total = median_milliseconds(step, limit)
    if mode in ("exact", "fixed"):
        return total, 0.0, 0.0, total
    if mode == "naive":
        return total, None, None, total
    of_gradient = median_milliseconds(gradient, limit)
    reduce = 0.0
    if mode != "direct":
        more, more_gradient = our_step(mode, n_draws, n_weights, QUARTIC)
        extra = median_milliseconds(more, limit) - median_milliseconds(more_gradient, limit)
        reduce = max(0.0, extra - (total - of_gradient))
    return total, max(0.0, total - of_gradient - reduce), reduce, of_gradient


def torch_step(name, n_draws, n_weights):
    """Return a step as a PyTorch program in double precision."""
    import torch

    torch.manual_seed(0)
    mu = torch.full((n_weights,), 0.1, dtype=torch.float64, requires_grad=True)
    sigma = torch.full((n_weights,), 0.5, dtype=torch.float64, requires_grad=True)

    def cross_term():
        """Minus the mean log-density of the prior, up to a constant."""
        if name == "torch loop":
            total = 0.0
            for _ in range(n_draws):
                w = mu + sigma * torch.randn(n_weights, dtype=torch.float64)
                total = total + 0.5 * (w * w).sum()
            return total / n_draws
        if name == "torch vector":
            w = mu + sigma * torch.randn(n_draws, n_weights, dtype=torch.float64)
            return 0.5 * (w * w).sum() / n_draws
        with torch.no_grad():
            first, second = torch.zeros(n_weights, dtype=torch.float64), torch.zeros(n_weights, dtype=torch.float64)
            for _ in range(n_draws):
                xi = torch.randn(n_weights, dtype=torch.float64)
                first += xi
                second += xi * xi
        return 0.5 * (mu * mu + 2 * mu * sigma * first / n_draws + sigma * sigma * second / n_draws).sum()

    def step():
        mu.grad = sigma.grad = None
        value = cross_term() - torch.log(sigma).sum()
        value.backward()
        return value.item(), mu.grad, sigma.grad

    return step


def torch_bytes(name, n_draws, n_weights):
    """Bytes that the graph of a step keeps, at least: draws and weights, eight bytes each."""
    return 16.0 * n_draws * n_weights if name != "torch sums" else 64.0 * n_weights


def show(label, milliseconds, extra, n_weights):
    """Print one row."""
    cells = ["       ·" if t is None else f"{t:10.3f}"[:10] for t in milliseconds]
    memory = "" if extra is None else f"{extra / 1e6:9.1f} MB {extra / (8 * n_weights):8.1f} D"
    print(f"  {label:13s}" + "".join(f"{cell:>11s}" for cell in cells) + f" {memory}", flush=True)


def main(arguments):
    """Print the table."""
    with_torch = not arguments.no_torch
    if with_torch:
        import torch

        torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads; milliseconds of a step: all, draw, reduce, gradient; peak extra memory")
    for n_weights in arguments.weights:
        for n_draws in arguments.draws:
            print(f"D = {n_weights}, M = {n_draws}", flush=True)
            for mode in MODES:
                sampled = mode in ("independent", "naive") or mode == "fixed"
                if sampled and n_draws * n_weights > arguments.most_draws:
                    print(f"  {mode:13s} left out: {n_draws * n_weights:.0e} draws a step")
                    continue
                step, _ = our_step(mode, n_draws, n_weights)
                step()
                extra = peak_extra_bytes(step)
                show(mode, our_case(mode, n_draws, n_weights, arguments.seconds), extra, n_weights)
            for name in TORCH if with_torch else ():
                needed = torch_bytes(name, n_draws, n_weights)
                if n_draws * n_weights > arguments.most_draws:
                    print(f"  {name:13s} left out: {n_draws * n_weights:.0e} draws a step")
                elif needed > arguments.most_bytes:
                    print(f"  {name:13s} left out: a graph of {needed / 1e9:.0f} GB at least")
                else:
                    torch_step(name, 2, 10)()  # what the library itself loads
                    step = torch_step(name, n_draws, n_weights)
                    extra = peak_extra_bytes(step)
                    milliseconds = median_milliseconds(step, arguments.seconds)
                    show(name, (milliseconds, None, None, None), extra, n_weights)


if __name__ == "__main__":
    main(ARGUMENTS)
