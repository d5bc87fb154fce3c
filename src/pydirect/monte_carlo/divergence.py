"""KL(q ‖ p) of independent weights and its gradient: in closed form, from sums over draws, or draw by draw.

With w = μ + σ ξ and a polynomial log-density, M draws enter only through the means of their powers (Nazarovs et al.
2021, theorem 2); with w = θ ξ, through single powers and logs (theorem 1). The entropy needs no draws, and where the
expected powers are known neither does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_flag, as_float_array
from pydirect.monte_carlo.densities import (
    HIGHEST_DEGREE,
    Density,
    GeneralizedErrorDensity,
    PolynomialDensity,
    Terms,
    UserDensity,
    as_prior,
)
from pydirect.monte_carlo.posteriors import (
    DIRECT_POWERS,
    SUPPORTS,
    NetworkDraws,
    PosteriorFamily,
    as_index,
    as_posterior,
    as_seed,
    has_moment,
    partial_normal_moments,
)

Value = tuple[float, FloatArray | None, FloatArray]


def draw_by_draw(
    log_density_and_slope: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    blocks: Iterable[FloatArray],
    n_samples: int,
    location: FloatArray | None,
    scale: FloatArray,
    exponentiated: bool,
) -> Value:
    """Average of −log p(w) over draws of w = μ + σ ξ (or θ ξ), or of its exponential; less log σ.

    `blocks` of draws ξ, (n_draws, n_weights) or (n_draws, 1), are `n_samples` in all.
    """
    value, slope, product = 0.0, np.zeros_like(scale), np.zeros_like(scale)
    for xi in blocks:
        v = scale * xi if location is None else location + scale * xi
        w = np.exp(v) if exponentiated else v
        log_p, slopes = log_density_and_slope(w)
        if exponentiated:  # the density of v = log w
            log_p, slopes = log_p + v, slopes * w + 1
        value += float(log_p.sum())
        slope += slopes.sum(axis=0)
        product += (slopes * xi).sum(axis=0)
    location_slope = None if location is None else -slope / n_samples
    return float(-np.log(scale).sum() - value / n_samples), location_slope, -1 / scale - product / n_samples


def of_normal_weights(terms: Terms, location: FloatArray, scale: FloatArray) -> Value:
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


def of_lognormal_weights(terms: Terms, location: FloatArray, scale: FloatArray) -> Value:
    """Of log-normal weights and powers: E w^r = exp(r μ + r² σ²/2), E log w = μ."""
    shifted = location - terms.log_centre
    a, b = terms.log_factor, terms.log_square_factor
    # log w's own density has one log w more.
    value = (1 + a) * location + b * (shifted**2 + scale**2)
    location_slope = -(1 + a) - 2 * b * shifted
    scale_slope = -1 / scale - 2 * b * scale
    for r, factor in zip(terms.exponents, terms.factors, strict=True):
        term = factor * np.exp(r * location + 0.5 * (r * scale) ** 2)
        value += term
        location_slope -= r * term
        scale_slope -= r * r * scale * term
    return float(-np.log(scale).sum() - value.sum()), location_slope, scale_slope


MODES = ("exact", "direct", "independent", "shared", "fixed", "naive")
PARAMETERIZATIONS = ("natural", "log", "softplus")


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
    prior : density, str or tuple, default=("normal", 0.0, 1.0)
        One of the densities of `pydirect.monte_carlo`, or its name and parameters: ``("normal", 0.0, 1.0)``.
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
        prior: Density | UserDensity | str | tuple[Any, ...] = ("normal", 0.0, 1.0),
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
        self._sorted: _core.SortedDraws | None = None
        try:
            self._terms = _terms_for(self.posterior, self.prior)
        except OverflowError:
            raise ValueError(f"prior must have parameters whose powers do not overflow, got {self.prior}") from None
        if not as_flag(allow_inadmissible, "allow_inadmissible"):
            self._check_admissible()
        self._computation = self._computation_of_mode()
        self._compiled = None if self._terms is None else self._terms.compiled()
        self.sums_: FloatArray | None = None
        self._draw()

    def __repr__(self) -> str:
        return (
            f"MonteCarloDivergence({self.posterior}, {self.prior}, {self.mode!r}, n_samples={self.n_samples}, "
            f"group_size={self.group_size})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_compiled", "_sorted")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compiled = None if self._terms is None else self._terms.compiled()
        self._draw()

    @property
    def n_parameters(self) -> int:
        """Rows of parameters: two with a location, one without."""
        return 2 if self.posterior.has_location else 1

    @property
    def required_sums(self) -> tuple[float | str, ...]:
        """Powers r of which mean ξ^r is needed, then ``"log"`` and ``"log_square"`` where their means are."""
        return () if self._terms is None or self._computation not in ("sums", "ranks") else self._terms.sums

    def _check_admissible(self) -> None:
        """Raise unless KL(q ‖ p) is finite."""
        q, name = self.posterior, type(self.prior).__name__
        support = self.prior.support if isinstance(self.prior, UserDensity) else self.prior.terms().support
        if SUPPORTS.index(q.support) < SUPPORTS.index(support):
            raise InadmissiblePairError(
                f"the {q.name} posterior's support ({q.support}) is not within that of {name} ({support}): "
                "the divergence is infinite"
            )
        terms = self._terms
        if isinstance(self.prior, PolynomialDensity) and not self.prior.terms().tails_fall(left=q.support == "real"):
            raise InadmissiblePairError(
                f"{name} does not tend to zero with the {q.name} posterior's weights: it is no density"
            )
        known = self.prior if isinstance(self.prior, UserDensity) else terms
        powers = known.tail_powers if known is not None else ()
        if q.name == "log_gamma" and self._exponentiated:
            if terms is not None or any(r > 0.0 for r in powers):
                raise InadmissiblePairError(
                    f"{name} needs powers of the log_gamma posterior's weights, which exist for some scales only"
                )
        elif not self._exponentiated:  # a log-normal law has all powers
            for r in powers:
                if not has_moment(q, r):
                    raise InadmissiblePairError(
                        f"{name} needs E |xi|^{r:g}, which is infinite for the {q.name} posterior: so is the divergence"
                    )

    def value_and_grad(self, parameters: ArrayLike) -> tuple[float, FloatArray]:
        """Return the divergence, and its gradient with respect to the parameters."""
        array = as_float_array(
            parameters, f"parameters with group_size={self.group_size}", (self.n_parameters, self.group_size)
        )
        scale, chain = self._scale(array[-1])
        gradient = np.empty_like(array)
        location = array[0] if self.posterior.has_location else None
        with np.errstate(over="ignore", invalid="ignore"):
            value = self._evaluate(location, scale, gradient[0] if location is not None else None, gradient[-1])
        if chain is not None:
            gradient[-1] *= chain
        constant = self._terms.constant if self._terms is not None else 0.0
        return float(value - self.posterior.base_entropy(self.group_size) - self.group_size * constant), gradient

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
        return self._draws.values(resolve_n_threads(self.n_threads))

    @property
    def _exponentiated(self) -> bool:
        """Whether exponentials of draws are needed: not where the prior has a simple density of log w."""
        return self.posterior.exponential and _log_space_terms(self.prior) is None

    def _scale(self, raw: FloatArray) -> tuple[FloatArray, FloatArray | None]:
        """Scales, and their derivatives where they are not parameters themselves."""
        if self.parameterization == "natural":
            if not (raw > 0.0).all():
                raise ValueError(f"scales must be positive, got {raw.min()}")
            return raw, None
        with np.errstate(over="ignore", under="ignore"):
            scale = np.exp(raw) if self.parameterization == "log" else np.logaddexp(0.0, raw)
        if not (np.isfinite(scale).all() and (scale > 0.0).all()):
            raise ValueError(f"scales must be positive and finite, got parameters from {raw.min()} to {raw.max()}")
        return scale, scale if self.parameterization == "log" else expit(raw)

    def _computation_of_mode(self) -> str:
        """How this mode computes the divergence, or its estimate where it is infinite; see `_evaluate`."""
        terms, q = self._terms, self.posterior
        if self.mode == "shared" and q.name == "radial":
            raise InadmissiblePairError("the radial posterior couples all weights: its draws cannot be shared by them")
        if terms is None:
            self._require_naive("a prior of your own is evaluated draw by draw")
            return "python"
        if self._exponentiated:
            if self.mode == "exact" and q.name == "lognormal" and terms.kind == "powers":
                return "lognormal moments"
            self._require_naive(f"no finite set of sums holds {type(self.prior).__name__} and exponentials of draws")
            return "draws"
        if self.mode == "naive":
            return "draws"
        if terms.kind == "logistic":
            self._require_naive("no finite set of sums holds a logistic log-density")
        return self._computation_of_pieces(terms) if terms.knots else self._computation_of_sums(terms)

    def _computation_of_pieces(self, terms: Terms) -> str:
        q = self.posterior
        if self.mode == "exact" and q.name == "normal":
            return "partial moments"
        if self.mode in ("exact", "direct"):
            shared = "" if q.name == "radial" else "'shared', "
            raise InadmissiblePairError(
                f"a log-density of {len(terms.pieces)} pieces must have draws to sort: mode must be "
                f"{shared}'independent', 'fixed' or 'naive', got {self.mode!r}"
            )
        return "ranks"

    def _computation_of_sums(self, terms: Terms) -> str:
        q = self.posterior
        law = "radial" if q.name == "radial" else q.law
        if self.mode == "direct" and not set(terms.sums) <= set(DIRECT_POWERS.get(law, ())):
            raise InadmissiblePairError(
                "mode 'direct' must draw the law of the sums, which is not known for "
                f"{terms.sums} of the {q.name} posterior"
            )
        return "sums"

    def _require_naive(self, reason: str) -> None:
        if self.mode != "naive":
            raise InadmissiblePairError(f"{reason}: mode must be 'naive', got {self.mode!r}")

    @property
    def _draws(self) -> NetworkDraws:
        shared = self.mode == "shared"
        return NetworkDraws(self.posterior, self.n_samples, self.group_size, self.seed, self._epoch, shared)

    def _draw(self) -> None:
        """Compute the sums, or sort the draws, of this epoch."""
        self._sorted = None
        threads = resolve_n_threads(self.n_threads)
        if self._computation == "ranks":
            assert self._terms is not None
            self._sorted = _core.SortedDraws(self._draws.compiled, self._terms.degree, threads)
        elif self._computation == "sums":
            self.sums_ = np.ascontiguousarray(self._sums(threads))

    def _sums(self, threads: int) -> FloatArray:
        """Means of powers and logs, (n_sums, group_size), or (n_sums, 1) where all weights share them."""
        assert self._terms is not None
        q = self.posterior
        powers = [float(r) for r in self._terms.sums if not isinstance(r, str)]
        n_logs = self._terms.n_logs if self._terms.kind == "powers" else 0
        if self.mode == "exact":
            moments = [q.moment(r, self.group_size) for r in powers]
            return np.array([*moments, *(q.log_moments()[:n_logs] if n_logs else ())])[:, None]
        if self.mode == "direct":
            return self._draws.means_from_their_law(len(powers), threads)
        return self._draws.means(powers, n_logs, threads)

    def _evaluate(self, location: Any, scale: FloatArray, location_slope: Any, scale_slope: FloatArray) -> float:
        """Return the divergence but for its constants; write its derivatives into the slopes."""
        terms, threads = self._terms, resolve_n_threads(self.n_threads)
        into = (location, scale, location_slope, scale_slope, threads)
        if self._computation == "ranks":
            assert self._sorted is not None and self._compiled is not None
            return self._sorted.divergence(self._compiled, *into)
        if self._computation == "sums":
            assert self.sums_ is not None and self._compiled is not None
            return self._compiled.divergence_from_sums(location, scale, self.sums_, *into[2:])
        if self._computation == "draws":
            assert self._compiled is not None
            return self._compiled.divergence_from_draws(self._draws.compiled, self._exponentiated, *into)
        if self._computation == "python":
            assert isinstance(self.prior, UserDensity)
            result = draw_by_draw(
                self.prior.log_density_and_slope,
                self._draws.blocks(threads),
                self.n_samples,
                location,
                scale,
                self._exponentiated,
            )
        else:
            assert terms is not None
            normal = self._computation == "partial moments"
            closed_form = of_normal_weights if normal else of_lognormal_weights
            result = closed_form(terms, location, scale)
        value, by_location, by_scale = result
        if location is not None:
            location_slope[:] = by_location
        scale_slope[:] = by_scale
        return value


def _terms_for(q: PosteriorFamily, prior: Density | UserDensity) -> Terms | None:
    """Return the prior's terms in the form that goes with the posterior, or None for those evaluated in Python."""
    if isinstance(prior, UserDensity):
        return None
    log_terms = _log_space_terms(prior) if q.exponential else None
    terms = prior.terms() if log_terms is None else log_terms
    positive = not q.has_location or (q.exponential and log_terms is None)
    form = terms.as_powers() if positive else terms.as_polynomial()
    if form is None and terms.kind == "powers" and isinstance(prior, GeneralizedErrorDensity):
        raise InadmissiblePairError(
            f"exponent must be an integer up to {HIGHEST_DEGREE} for weights on the real line, got {prior.exponent}"
        )
    if form is None and terms.kind == "powers":
        raise InadmissiblePairError(
            f"{type(prior).__name__} is a density of positive weights alone, those of the {q.name} posterior are real"
        )
    if form is None or form.kind != "powers":
        return form or terms
    return form.with_integers_first()


def _log_space_terms(prior: Density | UserDensity) -> Terms | None:
    return prior.log_space_terms() if isinstance(prior, Density) else None
