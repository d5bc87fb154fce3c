"""KL(q ‖ p) of independent weights and its gradient: in closed form, from sums over draws, or draw by draw.

With w = μ + σ ξ and a log-density that is a polynomial, all that M draws contribute are the means of their powers
(Nazarovs et al. 2021, theorem 2); with w = θ ξ it is single powers and logs (theorem 1). The entropy needs no draws at
all, and where the expected powers are known neither does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import factorial
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_float_array
from pydirect.monte_carlo.densities import (
    HIGHEST_DEGREE,
    Density,
    GeneralizedErrorDensity,
    LogNormalDensity,
    ParetoDensity,
    PolynomialDensity,
    Terms,
    UserDensity,
    as_prior,
)
from pydirect.monte_carlo.posteriors import (
    SUPPORTS,
    CustomFamily,
    Posterior,
    PosteriorFamily,
    has_moment,
    partial_normal_moments,
)

MODES = ("exact", "direct", "independent", "shared", "fixed", "naive")
PARAMETERIZATIONS = ("natural", "log", "softplus")
# Draws that Python code sees are made in blocks of so many numbers.
BLOCK_SIZE = 2**18
# Laws whose means of powers can be drawn without drawing ξ, and those powers.
DIRECT_POWERS = {
    "normal": (1.0, 2.0),
    "exponential": (1.0,),
    "gamma": (1.0,),
    "wald": (1.0,),
    "rayleigh": (2.0,),
}


class InadmissiblePairError(ValueError):
    """A posterior and a prior whose divergence is infinite or cannot be had in this way; the message says why."""


class MonteCarloDivergence:
    """KL(q ‖ p) of the weights of one tensor, and its gradient.

    Parameters
    ----------
    posterior : str, tuple, PosteriorFamily or CustomFamily
        One of ``"normal"``, ``"laplace"``, ``"logistic"``, ``"radial"``, ``"lognormal"``, ``"exponential"``,
        ``"rayleigh"``, ``("gamma", shape)``, ``("weibull", shape)``, ``("inverse_gamma", shape)``,
        ``("wald", shape)``, ``("log_gamma", shape)`` and ``"horseshoe"``.
    prior : density, str or tuple
        One of the densities of `pydirect.monte_carlo`, or its name and parameters: ``("normal", 0.0, 1.0)``.
    mode : str
        How expectations under q are taken:

        - ``"exact"``: by the expected powers of ξ, the limit of infinitely many draws.
        - ``"independent"``: by sums over `n_samples` draws a weight. None of these is stored, but for a prior of
          several pieces: its draws are sorted, and kept with sums of their powers.
        - ``"fixed"``: the same, drawn once and for all, which makes the objective deterministic.
        - ``"shared"``: by sums over one set of draws for all weights of the tensor.
        - ``"direct"``: by sums drawn from their own law, at a cost that does not depend on `n_samples`.
        - ``"naive"``: draw by draw, at a cost of `n_samples` evaluations of the prior a weight in every call.
    n_samples : int
        Draws M of a weight.
    group_size : int
        Number of weights of the tensor, D.
    parameterization : {"natural", "log", "softplus"}
        Whether the last row of parameters holds the scales σ (θ), their logs, or ρ with σ = log(1 + exp ρ).
    seed : int
        Draws are a function of it and of the number of calls of `resample`, not of the number of threads. Tensors of
        one network should have seeds of their own, lest they share their draws.
    n_threads : int, optional
    allow_inadmissible : bool
        Go on where the divergence is infinite, as published experiments do; its estimate then means little.

    Raises
    ------
    InadmissiblePairError
        When the posterior's support is not within the prior's, a mean that is needed does not exist, or the mode
        cannot serve the pair.

    Notes
    -----
    Values are whole divergences in nats, constants included; those that overflow are infinite. Parameters are (μ, σ) in
    two rows of `group_size`, or θ in one. A radial posterior couples all weights of the tensor. Draws are made by
    compiled code that does not heed interruptions before the last of them, some 20 ns each.

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
        posterior: str | tuple[str, float] | Posterior = "normal",
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
            self.check_admissible()
        self._evaluate = self._evaluator()
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

    # What is computed

    @property
    def n_parameters(self) -> int:
        """Rows of parameters: two with a location, one without."""
        return 2 if self.posterior.has_location else 1

    @property
    def is_exact(self) -> bool:
        """Whether values are free of sampling noise."""
        return self.mode == "exact"

    @property
    def required_sums(self) -> tuple[float | str, ...]:
        """Powers r of which mean ξ^r is needed, then ``"log"`` and ``"log_square"`` where their means are.

        Empty where there are no such sums.
        """
        if self._terms is None or self._evaluate not in (self._from_sums, self._from_ranks):
            return ()
        return _sums_of(self._terms)

    @property
    def d_p(self) -> int:
        """Number of products of functions of the parameters with data, d_P of the paper's definition 1.

        A power k of μ + σ ξ has k + 1 of them, a power or a log of θ ξ one, log² two; draw by draw there are as many
        for each of the draws, or μ and σ (θ) themselves where the log-density is not made of these.
        """
        terms = self._terms
        if terms is None or terms.kind == "logistic":
            return self.n_parameters * self.n_samples
        if terms.kind == "polynomial":
            number = sum(k + 1 for piece in terms.pieces for k, c in enumerate(piece) if k > 0 and c != 0.0)
        else:
            number = len(terms.exponents) + (0, 1, 3)[terms.n_logs]
        return number * (self.n_samples if self.mode == "naive" else 1)

    def check_admissible(self) -> None:
        """Raise unless KL(q ‖ p) is finite and this mode can compute it.

        Raises
        ------
        InadmissiblePairError
            With the reason.
        """
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
        powers = (self.prior.tail_power,) if isinstance(self.prior, UserDensity) else terms.tail_powers if terms else ()
        if q.name == "log_gamma" and self._exponentiated:
            if terms is not None or any(powers):
                raise InadmissiblePairError(
                    f"{name} needs powers of the log_gamma posterior's weights, which exist for some scales only"
                )
        elif not self._exponentiated or terms is None:
            for r in powers:
                if not has_moment(q, r):
                    raise InadmissiblePairError(
                        f"{name} needs E |xi|^{r:g}, which is infinite for the {q.name} posterior: so is the divergence"
                    )
        self._evaluator()

    # Values

    def value_and_grad(self, parameters: ArrayLike) -> tuple[float, FloatArray]:
        """Return the divergence, and its gradient with respect to the parameters.

        Parameters
        ----------
        parameters : array_like of shape (n_parameters, group_size)
            μ and σ, or θ; scales as `parameterization` says.

        Returns
        -------
        value : float
            In nats; with the draws that are current until the next `resample`.
        gradient : ndarray of shape (n_parameters, group_size)
        """
        array = as_float_array(parameters, "parameters", (self.n_parameters, self.group_size))
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
        """Draw anew; draws of mode ``"fixed"`` stay.

        Returns
        -------
        MonteCarloDivergence
            Itself.
        """
        if self.mode != "fixed":
            self._epoch += 1
            try:
                self._draw()
            except BaseException:
                self._epoch -= 1
                raise
        return self

    def draws(self) -> FloatArray:
        """Return the current draws ξ, (n_samples, group_size), or (n_samples, 1) when shared: the sums are theirs.

        Made for the occasion: they take `n_samples` times the memory of the parameters.

        Raises
        ------
        ValueError
            In modes without draws.
        """
        if self.mode in ("exact", "direct"):
            raise ValueError(f"mode must be one with draws, got {self.mode!r}")
        if isinstance(self.posterior, CustomFamily):
            return np.concatenate(list(self._blocks()))
        return self._base_draws().draws(resolve_n_threads(self.n_threads))

    # How

    @property
    def _exponentiated(self) -> bool:
        """Whether exponentials of draws enter: not where the prior, too, has a simple density of log w."""
        return self.posterior.exponential and not _has_log_space_terms(self.prior)

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

    def _evaluator(self) -> Callable[..., float]:
        """How this mode computes the divergence, or its estimate where it is infinite."""
        terms, q = self._terms, self.posterior
        if self.mode == "shared" and q.name == "radial":
            raise InadmissiblePairError("the radial posterior couples all weights: its draws cannot be shared by them")
        if terms is None:
            self._require_naive("a prior of your own is evaluated draw by draw")
            return self._from_python
        if self._exponentiated:
            if self.mode == "exact" and q.name == "lognormal" and terms.kind == "powers":
                return self._from_exponential_moments
            self._require_naive(f"no finite set of sums holds {type(self.prior).__name__} and exponentials of draws")
            return self._from_python if isinstance(q, CustomFamily) else self._from_draws
        if self.mode == "naive":
            return self._from_python if isinstance(q, CustomFamily) else self._from_draws
        if terms.kind == "logistic":
            self._require_naive("no finite set of sums holds a logistic log-density")
        if terms.knots:
            if self.mode == "exact" and q.name == "normal":
                return self._from_partial_moments
            if self.mode in ("exact", "direct"):
                shared = "" if q.name == "radial" else "'shared', "
                raise InadmissiblePairError(
                    f"a log-density of {len(terms.pieces)} pieces must have draws to sort: mode must be "
                    f"{shared}'independent', 'fixed' or 'naive', got {self.mode!r}"
                )
            if isinstance(q, CustomFamily):
                raise InadmissiblePairError("mode must be 'naive' for a custom posterior and a prior of several pieces")
            return self._from_ranks
        sums = _sums_of(terms)
        if self.mode == "direct" and not set(sums) <= set(DIRECT_POWERS.get(self._direct_law, ())):
            raise InadmissiblePairError(
                f"mode 'direct' must draw the law of the sums, which is not known for {sums} of the {q.name} posterior"
            )
        return self._from_sums

    def _require_naive(self, reason: str) -> None:
        if self.mode != "naive":
            raise InadmissiblePairError(f"{reason}: mode must be 'naive', got {self.mode!r}")

    @property
    def _direct_law(self) -> str:
        return "radial" if self.posterior.name == "radial" else self.posterior.law

    def _draw(self) -> None:
        self._sorted = None
        if self._evaluate == self._from_ranks:
            assert self._terms is not None
            threads = resolve_n_threads(self.n_threads)
            self._sorted = _core.SortedDraws(self._base_draws(), self._terms.degree, threads)
        elif self._evaluate == self._from_sums:
            self.sums_ = np.ascontiguousarray(self._sums())

    def _base_draws(
        self, law: str | None = None, shape: float | None = None, n_draws: int | None = None, first_draw: int = 0
    ) -> _core.BaseDraws:
        layout = "independent" if law or self.mode != "shared" else "shared"
        return _core.BaseDraws(
            "radial" if self.posterior.name == "radial" else layout,
            law or self.posterior.law,
            (getattr(self.posterior, "shape", None) or 1.0) if shape is None else shape,
            self.seed,
            self._epoch,
            first_draw,
            n_draws or self.n_samples,
            self.group_size,
        )

    def _sums(self) -> FloatArray:
        """Means of powers and logs, (n_sums, group_size), or (n_sums, 1) where all weights share them."""
        assert self._terms is not None
        q, threads = self.posterior, resolve_n_threads(self.n_threads)
        powers = [float(r) for r in self.required_sums if not isinstance(r, str)]
        n_logs = self._terms.n_logs if self._terms.kind == "powers" else 0
        if self.mode == "exact":
            moments = [q.moment(r, self.group_size) for r in powers]
            return np.array([*moments, *(q.log_moments()[:n_logs] if n_logs else ())])[:, None]
        if self.mode == "direct":
            return self._direct_sums(threads)
        if isinstance(q, CustomFamily):
            return self._custom_sums(powers, n_logs)
        return np.asarray(self._base_draws().mean_powers(powers, n_logs, threads))

    def _direct_sums(self, threads: int) -> FloatArray:
        law, n = self.posterior.law, self.n_samples
        if law == "normal":
            return np.asarray(self._base_draws().mean_powers_of_normals(threads))[: len(self.required_sums)]
        shape = getattr(self.posterior, "shape", None) or 1.0
        if law == "wald":  # a sum of M of them is M times one of M times the shape
            return np.asarray(self._base_draws("wald", n * shape, 1).draws(threads))
        # ξ is a gamma variable, or √(2 E) with an exponential E.
        return np.asarray(self._base_draws("gamma", n * shape, 1).draws(threads)) * ((1 + (law == "rayleigh")) / n)

    def _blocks(self) -> Iterator[FloatArray]:
        """Yield the draws, some rows at a time."""
        generator = np.random.default_rng([self.seed, self._epoch])
        n_columns = 1 if self.mode == "shared" else self.group_size
        size = max(2, BLOCK_SIZE // n_columns // 2 * 2)
        for begin in range(0, self.n_samples, size):
            n_rows = min(size, self.n_samples - begin)
            if isinstance(self.posterior, CustomFamily):
                yield self.posterior.draws(generator, (n_rows, n_columns))
            else:
                threads = resolve_n_threads(self.n_threads)
                yield self._base_draws(n_draws=n_rows, first_draw=begin).draws(threads)

    def _custom_sums(self, powers: list[float], n_logs: int) -> FloatArray:
        total: Any = 0.0
        for xi in self._blocks():
            logs = [np.log(xi) ** (k + 1) for k in range(n_logs)]
            total = total + np.stack([f.sum(axis=0) for f in [*(xi**r for r in powers), *logs]])
        return np.asarray(total / self.n_samples)

    def _from_sums(self, location: Any, scale: FloatArray, location_slope: Any, scale_slope: FloatArray) -> float:
        assert self._compiled is not None
        assert self.sums_ is not None
        threads = resolve_n_threads(self.n_threads)
        return self._compiled.divergence_from_sums(location, scale, self.sums_, location_slope, scale_slope, threads)

    def _from_ranks(self, location: Any, scale: FloatArray, location_slope: Any, scale_slope: FloatArray) -> float:
        assert self._compiled is not None
        assert self._sorted is not None
        threads = resolve_n_threads(self.n_threads)
        return self._sorted.divergence(self._compiled, location, scale, location_slope, scale_slope, threads)

    def _from_draws(self, location: Any, scale: FloatArray, location_slope: Any, scale_slope: FloatArray) -> float:
        assert self._compiled is not None
        arguments = (location, scale, location_slope, scale_slope, resolve_n_threads(self.n_threads))
        return self._compiled.divergence_from_draws(self._base_draws(), self._exponentiated, *arguments)

    def _from_python(self, location: Any, scale: FloatArray, location_slope: Any, scale_slope: FloatArray) -> float:
        """Draw by draw, for what has no compiled form."""
        value, slope, product = 0.0, np.zeros_like(scale), np.zeros_like(scale)
        for xi in self._blocks():
            v = scale * xi if location is None else location + scale * xi
            w = np.exp(v) if self._exponentiated else v
            if isinstance(self.prior, UserDensity):
                log_p, slopes = self.prior.log_density_and_slope(w)
            else:
                assert self._terms is not None
                log_p, slopes = self._terms.log_density_and_slope(w)
            if self._exponentiated:  # the density of v = log w
                log_p, slopes = log_p + v, slopes * w + 1
            value += float(log_p.sum())
            slope += slopes.sum(axis=0)
            product += (slopes * xi).sum(axis=0)
        if location is not None:
            location_slope[:] = -slope / self.n_samples
        scale_slope[:] = -1 / scale - product / self.n_samples
        return float(-np.log(scale).sum() - value / self.n_samples)

    def _from_partial_moments(
        self, location: FloatArray, scale: FloatArray, location_slope: FloatArray, scale_slope: FloatArray
    ) -> float:
        """Return Σ_pieces Σ_j σ^j p⁽ʲ⁾(A)/j! E[ξ^j; ξ in the piece], and the rest, for normal weights."""
        terms = self._terms
        assert terms is not None
        A, n = location - terms.centre, terms.degree + 1
        borders = np.array([-np.inf, *terms.knots, np.inf])[:, None]
        below = partial_normal_moments((borders - A) / scale, terms.degree)
        powers = scale ** np.arange(n)[:, None]
        value, location_slope[:], scale_slope[:] = 0.0, 0.0, -1 / scale
        for piece, coefficients in enumerate(terms.pieces):
            means = below[:, piece + 1] - below[:, piece]
            p = np.polynomial.Polynomial(coefficients)
            q = [p.deriv(j)(A) / factorial(j) if j else p(A) for j in range(n)]
            for j in range(n):
                value += float((powers[j] * means[j] * q[j]).sum())
                if j:
                    location_slope -= j * powers[j - 1] * means[j - 1] * q[j]
                    scale_slope -= j * powers[j - 1] * means[j] * q[j]
        return float(-np.log(scale).sum() - value)

    def _from_exponential_moments(
        self, location: FloatArray, scale: FloatArray, location_slope: FloatArray, scale_slope: FloatArray
    ) -> float:
        """Return that of log-normal weights: E w^r = exp(r μ + r² σ²/2), E log w = μ."""
        terms = self._terms
        assert terms is not None
        shifted = location - terms.log_centre
        a, b = terms.log_factor, terms.log_square_factor
        # log w's own density has one log w more.
        value = (1 + a) * location + b * (shifted**2 + scale**2)
        location_slope[:] = -(1 + a) - 2 * b * shifted
        scale_slope[:] = -1 / scale - 2 * b * scale
        for r, factor in zip(terms.exponents, terms.factors, strict=True):
            term = factor * np.exp(r * location + 0.5 * (r * scale) ** 2)
            value += term
            location_slope -= r * term
            scale_slope -= r * r * scale * term
        return float(-np.log(scale).sum() - value.sum())


def as_posterior(value: Any) -> Posterior:
    """Return a family, given as one, by name, or as ``(name, shape)``."""
    if isinstance(value, str):
        return PosteriorFamily(value)
    if isinstance(value, tuple) and len(value) == 2:
        return PosteriorFamily(*value)
    if not isinstance(value, PosteriorFamily | CustomFamily):
        raise TypeError(f"posterior must be a family, a name or a tuple (name, shape), got {value!r}")
    return value


def as_seed(value: Any) -> int:
    """Return a seed below 2⁶⁴, as the generator's key is."""
    if as_count(value, "seed", 0) >= 2**64:
        raise ValueError(f"seed must be below 2**64, got {value}")
    return int(value)


def as_index(value: Any, name: str) -> int:
    """Return a positive count below 2³², as counters of draws are."""
    if as_count(value, name) >= 2**32:
        raise ValueError(f"{name} must be below 2**32, got {value}")
    return int(value)


def _sums_of(terms: Terms) -> tuple[float | str, ...]:
    """Powers and logs of ξ that a log-density without pieces needs the means of."""
    if terms.kind == "polynomial":
        return tuple(float(k) for k in range(1, terms.degree + 1))
    return (*terms.exponents, *("log", "log_square")[: terms.n_logs])


def _has_log_space_terms(prior: Any) -> TypeGuard[LogNormalDensity | ParetoDensity]:
    return isinstance(prior, LogNormalDensity | ParetoDensity)


def _terms_for(q: Posterior, prior: Density | UserDensity) -> Terms | None:
    """Return the prior's terms in the form that goes with the posterior, or None for those evaluated in Python.

    Raises
    ------
    InadmissiblePairError
        When a log-density has no such form on the posterior's support.
    """
    if isinstance(prior, UserDensity):
        return None
    in_log_space = q.exponential and _has_log_space_terms(prior)
    terms = prior.log_space_terms() if in_log_space else prior.terms()  # type: ignore[union-attr]
    positive = not q.has_location or (q.exponential and not in_log_space)
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
    # Positive integers first, as the kernels want them.
    pairs = sorted(zip(form.exponents, form.factors, strict=True), key=lambda p: (p[0] < 0 or p[0] % 1 > 0, p[0]))
    return replace(form, exponents=tuple(r for r, _ in pairs), factors=tuple(f for _, f in pairs))
