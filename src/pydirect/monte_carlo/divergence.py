"""KL(q ‖ p) of independent weights and its gradient: in closed form, from sums over draws, or draw by draw.

With w = μ + σ ξ and a polynomial log-density, M draws enter only through the means of their powers (Nazarovs et al.
2021, theorem 2); with w = θ ξ, through single powers and logs (theorem 1). The entropy needs no draws, and where the
expected powers are known neither does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_flag, as_float_array
from pydirect.monte_carlo.densities import HIGHEST_DEGREE, Density, UserDensity, as_prior
from pydirect.monte_carlo.posteriors import (
    SUPPORTS,
    PosteriorFamily,
    as_index,
    as_posterior,
    as_seed,
    has_moment,
    partial_normal_moments,
)

MODES = ("exact", "direct", "independent", "shared", "fixed", "naive")
PARAMETERIZATIONS = ("natural", "log", "softplus")
# Draws that Python code sees are made in blocks of this size.
BLOCK_SIZE = 2**18
# Laws whose means of powers can be drawn without drawing ξ, and those powers.
DIRECT_POWERS = {"normal": (1.0, 2.0), "exponential": (1.0,), "gamma": (1.0,), "wald": (1.0,), "rayleigh": (2.0,)}
# From location and scale, arrays for the derivatives by them and a number of threads to −E log p(w) − log σ.
Estimate = Callable[[FloatArray | None, FloatArray, FloatArray | None, FloatArray, int], float]


class InadmissiblePairError(ValueError):
    """Pair of posterior and prior whose divergence is infinite or cannot be computed in this mode."""


class MonteCarloDivergence:
    """KL(q ‖ p) of the weights of one tensor, and its gradient.

    Parameters
    ----------
    posterior : str, tuple or PosteriorFamily, default="normal"
        One of ``"normal"``, ``"laplace"``, ``"logistic"``, ``"radial"``, ``"lognormal"``, ``"exponential"``,
        ``"rayleigh"``, ``("gamma", shape)``, ``("weibull", shape)``, ``("inverse_gamma", shape)``,
        ``("wald", shape)``, ``("log_gamma", shape)`` and ``"horseshoe"``.
    prior : tuple, str or UserDensity, default=("normal", 0.0, 1.0)
        A name and its parameters, of which the last may be left out: ``("normal", mean, scale)``,
        ``("laplace", location, diversity)``, ``("logistic", location, scale)``, ``("huber", location, scale,
        threshold)``, ``("generalized_error", location, scale, exponent)``, ``("polynomial", pieces, centre, knots)``
        with rows of coefficients of 1, w − centre, … and knots between them, ``("scale_mixture", mean,
        log_scale_mean, log_scale_deviation)``, the conditional form of a horseshoe; of positive weights
        ``("lognormal", mean, scale)``, ``("exponential", rate)``, ``("gamma", shape, rate)``,
        ``("inverse_gamma", shape, scale)``, ``("rayleigh", scale)``, ``("weibull", shape, scale)``,
        ``("wald", mean, shape)`` and ``("pareto", exponent)``. Or a log-density of your own.
    mode : str, default="exact"
        How expectations under q are computed:

        - ``"exact"``: from the expected powers of ξ, the limit of infinitely many draws.
        - ``"independent"``: from sums over `n_samples` draws per weight. None of these is stored, except for a prior
          of several pieces: its draws are sorted, and kept with sums of their powers.
        - ``"fixed"``: the same, drawn once, which makes the objective deterministic.
        - ``"shared"``: from sums over one set of draws for all weights of the tensor.
        - ``"direct"``: from sums drawn from their own law, at a cost that does not depend on `n_samples`.
        - ``"naive"``: draw by draw, at a cost of `n_samples` evaluations of the prior per weight and call.
    n_samples : int, default=1000
        Number of draws per weight, M.
    group_size : int, default=1
        Number of weights of the tensor, D.
    parameterization : {"natural", "log", "softplus"}, default="natural"
        Whether the last row of parameters holds the scales σ (θ), their logs, or ρ with σ = log(1 + exp ρ).
    seed : int, default=0
        Draws are a function of it and of the number of calls of `resample`, not of the number of threads. Give every
        tensor of a network its own seed, or they share their draws.
    n_threads : int, optional
        Number of threads; results have the same bits for any.
    allow_inadmissible : bool, default=False
        Accept pairs whose divergence is infinite, as published experiments do; its estimate then means little.

    Raises
    ------
    InadmissiblePairError
        When the posterior's support is not within the prior's, a required mean does not exist, or the mode cannot
        compute the divergence of the pair.

    Notes
    -----
    Values are whole divergences in nats, constants included; those that overflow are infinite. Parameters are (μ, σ) in
    two rows of `group_size`, or θ in one. A radial posterior couples all weights of the tensor. Compiled code makes the
    draws, some 20 ns each, and notices interruptions only after the last of them.

    References
    ----------
    Nazarovs, Mehta, Lokhande and Singh, "Graph Reparameterizations for Enabling 1000+ Monte Carlo Iterations in
    Bayesian Deep Neural Networks", UAI 2021.

    Examples
    --------
    >>> kl = MonteCarloDivergence("normal", ("normal", 0.0, 1.0), group_size=3)
    >>> value, gradient = kl.value_and_grad([[0.0, 0.0, 2.0], [1.0, 1.0, 1.0]])
    >>> round(value, 12), gradient[0].tolist()
    (2.0, [0.0, 0.0, 2.0])
    """

    def __init__(
        self,
        posterior: str | tuple[str, float] | PosteriorFamily = "normal",
        prior: UserDensity | Density | str | tuple[Any, ...] = ("normal", 0.0, 1.0),
        mode: str = "exact",
        n_samples: int = 1000,
        group_size: int = 1,
        *,
        parameterization: str = "natural",
        seed: int = 0,
        n_threads: int | None = None,
        allow_inadmissible: bool = False,
    ) -> None:
        self.posterior = as_posterior(posterior)
        self.prior = as_prior(prior)
        self.mode = as_choice(mode, "mode", MODES)
        self.n_samples = as_index(n_samples, "n_samples")
        self.group_size = as_index(group_size, "group_size")
        self.parameterization = as_choice(parameterization, "parameterization", PARAMETERIZATIONS)
        self.seed = as_seed(seed)
        self.n_threads = n_threads
        self._epoch = 0
        self._terms = None if isinstance(self.prior, UserDensity) else _terms_for(self.posterior, self.prior)
        if not as_flag(allow_inadmissible, "allow_inadmissible"):
            self._check_admissible()
        self._computation = self._computation_of_mode()
        self._draw()

    def __repr__(self) -> str:
        return (
            f"MonteCarloDivergence({self.posterior}, {self.prior}, {self.mode!r}, n_samples={self.n_samples}, "
            f"group_size={self.group_size})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_estimate"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._draw()

    @property
    def n_parameters(self) -> int:
        """Rows of parameters: two with a location, one without."""
        return 2 if self.posterior.has_location else 1

    def _check_admissible(self) -> None:
        """Raise unless KL(q ‖ p) is finite."""
        q, p, terms = self.posterior, self.prior, self._terms
        if SUPPORTS.index(q.support) < SUPPORTS.index(p.support):
            raise InadmissiblePairError(f"{p.name} has no mass on all of the {q.name} posterior's support: {q.support}")
        if isinstance(p, Density) and p.name == "polynomial" and not p.tails_fall(left=q.support == "real"):
            raise InadmissiblePairError(f"{p.name} does not tend to zero with weights: it is no density")
        powers = p.tail_powers if terms is None else terms.tail_powers
        if q.name == "log_gamma" and self._exponentiated:
            if terms is not None or any(r > 0.0 for r in powers):
                raise InadmissiblePairError(f"{p.name} needs powers of log_gamma weights, which need not exist")
            return
        # A log-normal law has all powers.
        lacking = [] if self._exponentiated else [r for r in powers if not has_moment(q, r)]
        if lacking:
            raise InadmissiblePairError(f"E |xi|^{lacking[0]:g}, which {p.name} needs, is infinite for {q.name}")

    def _computation_of_mode(self) -> str:
        """How this mode computes the divergence, or its estimate where it is infinite; see `_draw`."""
        terms, q, mode = self._terms, self.posterior, self.mode
        if mode == "shared" and q.name == "radial":
            raise InadmissiblePairError("the radial posterior couples all weights: its draws cannot be shared by them")
        if mode == "exact" and q.name == "lognormal" and self._exponentiated and terms and terms.kind == "powers":
            return "closed form"
        if mode == "naive":
            return "draws"
        if terms is None or self._exponentiated or terms.kind == "logistic":
            reason = f"no finite set of sums holds {self.prior.name} and exponentials of draws"
            if terms is None:
                reason = "a prior of your own is evaluated draw by draw"
            elif not self._exponentiated:
                reason = "no finite set of sums holds a logistic log-density"
            raise InadmissiblePairError(f"{reason}: mode must be 'naive', got {mode!r}")
        if terms.knots and mode == "exact" and q.name == "normal":
            return "closed form"
        if terms.knots and mode in ("exact", "direct"):
            modes = ("" if q.name == "radial" else "'shared', ") + "'independent', 'fixed' or 'naive'"
            raise InadmissiblePairError(f"pieces must have draws to sort: mode must be {modes}, got {mode!r}")
        known = DIRECT_POWERS.get("radial" if q.name == "radial" else q.law, ())
        if mode == "direct" and not set(terms.sums) <= set(known):
            raise InadmissiblePairError(
                f"mode 'direct' must draw the law of {terms.sums} of {q.name}, which is not known"
            )
        return "ranks" if terms.knots else "sums"

    @property
    def _exponentiated(self) -> bool:
        """Whether exponentials of draws are needed: not where the prior has a simple density of log w."""
        return self.posterior.exponential and getattr(self.prior, "of_log", None) is None

    # --- values

    def value_and_grad(self, parameters: ArrayLike) -> tuple[float, FloatArray]:
        """Return the divergence, and its gradient with respect to the parameters."""
        name = f"parameters with group_size={self.group_size}"
        array = as_float_array(parameters, name, (self.n_parameters, self.group_size))
        scale, chain = self._scale(array[-1])
        gradient = np.empty_like(array)
        location, slope = (array[0], gradient[0]) if self.posterior.has_location else (None, None)
        with np.errstate(over="ignore", invalid="ignore"):
            value = self._estimate(location, scale, slope, gradient[-1], resolve_n_threads(self.n_threads))
        gradient[-1] *= chain
        constant = self._terms.constant if self._terms is not None else 0.0
        return float(value - self.posterior.base_entropy(self.group_size) - self.group_size * constant), gradient

    def _scale(self, raw: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Scales, and their derivatives by the parameters."""
        if self.parameterization == "natural":
            if not (raw > 0.0).all():
                raise ValueError(f"scales must be positive, got {raw.min()}")
            return raw, 1.0
        with np.errstate(over="ignore", under="ignore"):
            scale = np.exp(raw) if self.parameterization == "log" else np.logaddexp(0.0, raw)
        if not (np.isfinite(scale).all() and (scale > 0.0).all()):
            raise ValueError(f"scales must be positive and finite, got parameters from {raw.min()} to {raw.max()}")
        return scale, scale if self.parameterization == "log" else expit(raw)

    def _closed_form(self, location: FloatArray | None, scale: FloatArray, *rest: Any) -> float:
        location_slope, scale_slope, _ = rest
        assert self._terms is not None and location is not None
        of_weights = of_lognormal_weights if self._exponentiated else of_normal_weights
        value, location_slope[:], scale_slope[:] = of_weights(self._terms, location, scale)
        return value

    def _draw_by_draw(self, location: FloatArray | None, scale: FloatArray, *rest: Any) -> float:
        """Average over draws of w = μ + σ ξ (or θ ξ), or of its exponential."""
        location_slope, scale_slope, threads = rest
        assert isinstance(self.prior, UserDensity)
        value, slope, product = 0.0, np.zeros_like(scale), np.zeros_like(scale)
        for xi in self._blocks(threads):
            v = scale * xi if location is None else location + scale * xi
            w = np.exp(v) if self._exponentiated else v
            log_p, slopes = self.prior.log_density_and_slope(w)
            if self._exponentiated:  # the density of v = log w
                log_p, slopes = log_p + v, slopes * w + 1
            value += float(log_p.sum())
            slope += slopes.sum(axis=0)
            product += (slopes * xi).sum(axis=0)
        if location_slope is not None:
            location_slope[:] = -slope / self.n_samples
        scale_slope[:] = -1 / scale - product / self.n_samples
        return float(-np.log(scale).sum() - value / self.n_samples)

    # --- draws

    def resample(self) -> MonteCarloDivergence:
        """Make new draws; those of mode ``"fixed"`` stay."""
        if self.mode != "fixed":
            self._epoch += 1
            try:
                self._draw()
            except BaseException:
                self._epoch -= 1
                raise
        return self

    def draws(self) -> FloatArray:
        """Return the current draws ξ, (n_samples, group_size), or (n_samples, 1) when shared, made for this call."""
        if self.mode in ("exact", "direct"):
            raise ValueError(f"mode must be one with draws, got {self.mode!r}")
        return self._base_draws().draws(resolve_n_threads(self.n_threads))

    def _blocks(self, threads: int) -> Iterator[FloatArray]:
        """Yield the draws, some rows at a time."""
        size = max(2, BLOCK_SIZE // (1 if self.mode == "shared" else self.group_size) // 2 * 2)
        for begin in range(0, self.n_samples, size):
            yield self._base_draws(n_draws=min(size, self.n_samples - begin), first_draw=begin).draws(threads)

    def _draw(self) -> None:
        """Compute the sums, or sort the draws, of this epoch; set how the divergence is found of them."""
        self.sums_: FloatArray | None = None
        self._estimate: Estimate = self._closed_form if self._computation == "closed form" else self._draw_by_draw
        if self._terms is None or self._computation == "closed form":
            return
        compiled, draws, threads = self._terms.compiled(), self._base_draws(), resolve_n_threads(self.n_threads)
        if self._computation == "ranks":
            self._estimate = partial(_core.SortedDraws(draws, self._terms.degree, threads).divergence, compiled)
        elif self._computation == "draws":
            self._estimate = partial(compiled.divergence_from_draws, draws, self._exponentiated)
        else:
            sums = self.sums_ = np.ascontiguousarray(self._sums(self._terms, threads))
            self._estimate = lambda location, scale, *rest: compiled.divergence_from_sums(location, scale, sums, *rest)

    def _sums(self, terms: Density, threads: int) -> FloatArray:
        """Means of powers and logs, (n_sums, group_size), or (n_sums, 1) where all weights share them."""
        q, n = self.posterior, self.n_samples
        powers = [r for r in terms.sums if not isinstance(r, str)]
        if self.mode == "exact":
            logs = q.log_moments()[: terms.n_logs] if terms.n_logs else ()
            return np.array([*(q.moment(r, self.group_size) for r in powers), *logs])[:, None]
        if self.mode != "direct":
            return np.asarray(self._base_draws().mean_powers(powers, terms.n_logs, threads))
        if q.law == "normal":
            return np.asarray(self._base_draws().mean_powers_of_normals(threads))[: len(powers)]
        # The mean of n Wald variables of mean one is another one, with n times their shape; ξ is a gamma variable, or
        # √(2 E) with an exponential E.
        law, factor = ("wald", 1.0) if q.law == "wald" else ("gamma", (1 + (q.law == "rayleigh")) / n)
        return np.asarray(self._base_draws(law, n * (q.shape or 1.0), 1).draws(threads)) * factor

    def _base_draws(
        self, law: str | None = None, shape: float | None = None, n_draws: int | None = None, first_draw: int = 0
    ) -> _core.BaseDraws:
        """Draws ξ as the compiled module makes them: a function of seed and epoch, not of the number of threads."""
        q, size = self.posterior, (n_draws or self.n_samples, self.group_size)
        layout = "radial" if q.name == "radial" else "shared" if self.mode == "shared" else "independent"
        return _core.BaseDraws(layout, law or q.law, shape or q.shape or 1.0, self.seed, self._epoch, first_draw, *size)


def of_normal_weights(terms: Density, location: FloatArray, scale: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Of normal weights, a piecewise polynomial: Σ_pieces Σ_j σ^j p⁽ʲ⁾(A)/j! E[ξ^j; ξ in the piece], and the rest."""
    A, n = location - terms.centre, terms.degree + 1
    borders = np.array([-np.inf, *terms.knots, np.inf])[:, None]
    below = partial_normal_moments((borders - A) / scale, terms.degree)
    powers = scale ** np.arange(n)[:, None]
    value, location_slope, scale_slope = 0.0, np.zeros_like(scale), -1 / scale
    for piece, coefficients in enumerate(terms.pieces):
        means = below[:, piece + 1] - below[:, piece]
        p = np.polynomial.Polynomial(coefficients)
        q = [p.deriv(j)(A) / factorial(j) if j else p(A) for j in range(n)]
        for j in range(n):
            value += float((powers[j] * means[j] * q[j]).sum())
            if j:
                location_slope -= j * powers[j - 1] * means[j - 1] * q[j]
                scale_slope -= j * powers[j - 1] * means[j] * q[j]
    return float(-np.log(scale).sum() - value), location_slope, scale_slope


def of_lognormal_weights(
    terms: Density, location: FloatArray, scale: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Of log-normal weights and powers: E w^r = exp(r μ + r² σ²/2), E log w = μ."""
    shifted = location - terms.log_centre
    a, b = terms.log_factor, terms.log_square_factor
    # log w's own density has one log w more.
    value = (1 + a) * location + b * (shifted**2 + scale**2)
    location_slope = -(1 + a) - 2 * b * shifted
    scale_slope = -1 / scale - 2 * b * scale
    for r, factor in terms.powers:
        term = factor * np.exp(r * location + 0.5 * (r * scale) ** 2)
        value += term
        location_slope -= r * term
        scale_slope -= r * r * scale * term
    return float(-np.log(scale).sum() - value.sum()), location_slope, scale_slope


def _terms_for(q: PosteriorFamily, prior: Density) -> Density:
    """Return the prior's terms in the form that goes with the posterior."""
    log_terms = prior.of_log if q.exponential else None
    terms = log_terms or prior
    positive = not q.has_location or (q.exponential and log_terms is None)
    form = terms.as_powers() if positive else terms.as_polynomial()
    if form is None and terms.kind == "powers":
        raise InadmissiblePairError(
            f"exponent must be an integer up to {HIGHEST_DEGREE} for weights on the real line, got {prior.powers[0][0]}"
            if prior.name == "generalized_error"
            else f"{prior.name} is a density of positive weights alone, those of the {q.name} posterior are real"
        )
    return form or terms
