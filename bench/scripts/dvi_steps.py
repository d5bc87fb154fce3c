"""Steps of deterministic variational inference: value and gradient of the objective, beside the same step in PyTorch.

    python bench/scripts/dvi_steps.py [--threads 1] [--repeats 15] [--networks 1x50 2x128 5x25] [--draws 10 300]

Heteroscedastic ReLU networks, batches of 500 rows, float64, empirical Bayes. The PyTorch step is the usual way to write
it: batched products, independent units of the first hidden layer taken as such, automatic differentiation; between
correlated units it has the closed form of Wu et al. (eq. 6), which is cheaper than the exact kernel but not exact. So
there are two rows for us: the same formula ("paper"), and the default ("exact"). Value and gradient are compared first.

Prints medians; the share of a matrix product's rate counts the operations of the products alone, against the product
of two 512 × 512 matrices in NumPy's BLAS; then the objective of variances only, and the Monte Carlo objective. Last,
by how much each network raised the process' peak of memory, PyTorch's share included but with --no-torch: zero where an
earlier one had raised it higher.
"""

from __future__ import annotations

import argparse
import os
import resource
import time


def parse_arguments():
    """Read the command line, and limit the threads of libraries that ask for them when they are loaded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--networks", nargs="+", default=["1x50", "2x128", "5x25"], help="depth x width")
    parser.add_argument("--draws", type=int, nargs="*", default=[10, 300], help="of the Monte Carlo objective")
    parser.add_argument("--no-torch", action="store_true", help="leave the PyTorch step out")
    parser.add_argument("--cpu-time", action="store_true", help="count the CPU's time, not the wall's: one thread only")
    arguments = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(arguments.threads)
    return arguments


if __name__ == "__main__":
    ARGUMENTS = parse_arguments()

import numpy as np  # noqa: E402

from pydirect.networks.deterministic import DeterministicNetwork  # noqa: E402
from pydirect.networks.training import NetworkObjective  # noqa: E402

N_INPUTS = {"1x50": 13}  # else one, as in the paper's toy problem
N_ROWS = 500
MOST_SECONDS = 10.0  # for one figure


def median_seconds(step, repeats, clock):
    """Median time of a step, after one to warm up; of three at least, of fewer than asked for when they are slow."""
    step()
    times = []
    while len(times) < 3 or (len(times) < repeats and sum(times) < MOST_SECONDS):
        start = clock()
        step()
        times.append(clock() - start)
    return float(np.median(times))


def peak_memory():
    """Return the process' peak of memory in MB (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def product_flops(network):
    """Operations of the matrix products of one value and gradient; of symmetric results one triangle."""
    total = 0.0
    for index, (d, o) in enumerate(network.layers):
        total += (8 if index == 0 else 12) * d * o  # mean and variance: forward, ∂ inputs, ∂ parameters
        if index == 1:  # from independent units: Mᵀ diag(hv) M; pairs of columns both ways, or M Sb
            total += d * o * (o + 1) + (2 * d * o * (o + 1) if o <= 10 else 2 * d * o * o)
        elif index > 1:  # C M, Mᵀ P; M Sb, P Sb, Q Mᵀ
            total += 2 * d * d * o + d * o * (o + 1) + 4 * d * o * o + 2 * d * d * o
    return N_ROWS * total


class TorchStep:
    """Value and gradient of the objective as a PyTorch program; eq. (6) between correlated units."""

    def __init__(self, network, theta, x, y, n_threads):
        import torch

        torch.set_num_threads(n_threads)
        self.torch, self.prior = torch, network.prior
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)
        self.layers = [[torch.from_numpy(a.copy()).requires_grad_() for a in layer] for layer in network.unpack(theta)]

    def __call__(self):
        """Return F, and its gradient in the order of θ."""
        for leaf in (leaf for layer in self.layers for leaf in layer):
            leaf.grad = None
        value = self.kl() / len(self.x) - self.expected_log_likelihood().mean()
        value.backward()
        parts = [leaf.grad for layer in self.layers for leaf in layer[:2]]
        parts += [leaf.grad for layer in self.layers for leaf in layer[2:]]
        return value.item(), np.concatenate([part.numpy().ravel() for part in parts])

    def expected_log_likelihood(self):
        """Eq. (8) for every row."""
        torch = self.torch
        m, b, log_s, log_sb = self.layers[0]
        mean = self.x @ m + b
        variance = (self.x * self.x) @ torch.exp(2 * log_s) + torch.exp(2 * log_sb)
        covariance = None
        for m, b, log_s, log_sb in self.layers[1:]:
            s, cdf, hm, v, hv = self.unit_moments(mean, variance)
            if covariance is None:
                new = (m.T * hv[:, None, :]) @ m
            else:
                c = self.off_diagonal(mean / s, s, cdf, covariance)
                c = c - torch.diag_embed(torch.diagonal(c, dim1=1, dim2=2)) + torch.diag_embed(hv)
                new = m.T @ (c @ m)
            mean = hm @ m + b
            covariance = new + torch.diag_embed(v @ torch.exp(2 * log_s) + torch.exp(2 * log_sb))
            variance = torch.diagonal(covariance, dim1=1, dim2=2)
        log_noise = mean[:, 1]
        weight = torch.exp(0.5 * covariance[:, 1, 1] - log_noise)
        squared_error = covariance[:, 0, 0] + (mean[:, 0] - covariance[:, 0, 1] - self.y) ** 2
        return -0.5 * (np.log(2 * np.pi) + log_noise + weight * squared_error)

    def unit_moments(self, mean, variance):
        """Return s, Φ(μ), E h, E h², Var h."""
        torch = self.torch
        s = torch.sqrt(variance)
        mu = mean / s
        cdf = torch.special.ndtr(mu)
        sr = torch.exp(-0.5 * mu * mu) / np.sqrt(2 * np.pi) + mu * cdf
        hm, v = s * sr, variance * (cdf + mu * sr)
        return s, cdf, hm, v, torch.clamp(v - hm * hm, min=0)

    def off_diagonal(self, mu, s, cdf, covariance):
        """S [Φ_j Φ_l + g/(2π) exp(−β (μ_j² + μ_l²) + γ μ_j μ_l)], g = asin r − r/(1 + √(1 − r²))."""
        torch = self.torch
        r = (covariance / (s[:, :, None] * s[:, None, :])).clamp(-1 + 1e-6, 1 - 1e-6)
        root, r2 = torch.sqrt(1 - r * r), r * r
        small = r.abs() < 0.1
        series = r2 * (1 / 6 + r2 * (3 / 40 + r2 * (15 / 336 + r2 * (105 / 3456 + r2 * (945 / 42240)))))
        other = torch.where(small, torch.full_like(r, 0.5), r)
        excess = torch.where(small, series, torch.arcsin(other) / other - 1)  # (asin r − r)/r
        g = 1 + excess - 1 / (1 + root)  # g/r
        beta = 1 / (2 * g * (1 + root))
        gamma = excess / (g * torch.where(r == 0, torch.ones_like(r), r))
        mu_j, mu_l = mu[:, :, None], mu[:, None, :]
        residual = r * g / (2 * np.pi) * torch.exp(gamma * mu_j * mu_l - beta * (mu_j**2 + mu_l**2))
        return covariance * (cdf[:, :, None] * cdf[:, None, :] + residual)

    def kl(self):
        """Eq. (12) for every set of weights."""
        torch, alpha, beta, total = self.torch, self.prior.alpha, self.prior.beta, 0.0
        for m, b, log_s, log_sb in self.layers:
            for mean, log_std in ((m, log_s), (b, log_sb)):
                scatter = (torch.exp(2 * log_std) + mean * mean).sum() + 2 * beta
                count = mean.numel() + 2 * alpha + 2
                total = total + 0.5 * count * (torch.log(scatter / count) + 1) - 0.5 * mean.numel() - log_std.sum()
                total = total - alpha * np.log(beta)  # lgamma(1) = 0
        return total


def report(name, arguments, rate):
    """Print the figures of one network; rate: operations a second of a matrix product."""
    depth, width = map(int, name.split("x"))
    shape = (N_INPUTS.get(name, 1), (width,) * depth)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    networks = {kernel: DeterministicNetwork(*shape, kernel=kernel) for kernel in ("paper", "exact")}
    networks["diagonal"] = DeterministicNetwork(*shape, covariance="diagonal")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N_ROWS, shape[0]))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(N_ROWS)
    theta = networks["exact"].initial_parameters(rng)

    objectives = {label: NetworkObjective(network, x, y) for label, network in networks.items()}
    for draws in arguments.draws:
        objectives[f"MCVI {draws}"] = NetworkObjective(networks["exact"], x, y, inference="mcvi", n_draws=draws)
    steps = {
        label: lambda objective=objective: objective(theta, n_threads=arguments.threads)
        for label, objective in objectives.items()
    }
    print(name, flush=True)
    torch_seconds = None
    if not arguments.no_torch:
        step = TorchStep(networks["paper"], theta, x, y, arguments.threads)
        (value, gradient), (ours, our_gradient) = step(), steps["paper"]()
        error = np.abs(gradient - our_gradient).max() / np.abs(gradient).max()
        print(f"  relative difference of the value {abs(ours / value - 1):.1e}, of the gradient {error:.1e}")
        torch_seconds = median_seconds(step, arguments.repeats, clock)
        print(f"  {'PyTorch':10s} {1e3 * torch_seconds:10.3f} ms", flush=True)
    for label, step in steps.items():
        seconds = median_seconds(step, arguments.repeats, clock)
        line = f"  {label:10s} {1e3 * seconds:10.3f} ms"
        if torch_seconds is not None:
            line += f" {torch_seconds / seconds:8.1f} x"
        if label in ("paper", "exact"):
            line += f" {product_flops(networks[label]) / seconds / rate:7.1%} of a product's rate"
        print(line, flush=True)


def main(arguments):
    """Time the networks asked for."""
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    matrix = np.random.default_rng(0).standard_normal((512, 512))
    rate = 2 * 512**3 / median_seconds(lambda: matrix @ matrix, arguments.repeats, clock)
    print(f"{arguments.threads} threads, {N_ROWS} rows, float64; a matrix product: {rate / 1e9:.1f} GFlop/s")
    for name in arguments.networks:
        before = peak_memory()
        report(name, arguments, rate)
        print(f"  {'memory':10s} {peak_memory() - before:10.1f} MB", flush=True)


if __name__ == "__main__":
    main(ARGUMENTS)
