"""Log-densities of weights as sums of the few terms that divergences can be computed from.

A log-density is a (piecewise) polynomial in w − centre, or Σ f w^r + a log w + b (log w − m)², or a logistic one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray

HIGHEST_DEGREE = 16


@dataclass(frozen=True)
class Terms:
    """Log-density of one weight: `constant` plus the terms of one kind.

    - `kind`: {"polynomial", "powers", "logistic"}.
    - `support`: {"real", "positive", "above one"}.
    - `pieces`: coefficients of 1, w − centre, (w − centre)², …, one tuple between any two knots.
    - `knots`: ascending, relative to the centre.
    - `exponents`, `factors`: Σ factor w^exponent.
    - `log_factor`, `log_square_factor`, `log_centre`: a, b and m of a log w + b (log w − m)².
    """

    kind: str
    support: str = "real"
    constant: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    pieces: tuple[tuple[float, ...], ...] = ((0.0,),)
    knots: tuple[float, ...] = ()
    exponents: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    log_factor: float = 0.0
    log_square_factor: float = 0.0
    log_centre: float = 0.0

    @property
    def n_logs(self) -> int:
        """Number of means of logs that the terms need: none, that of log ξ, or those of log ξ and log² ξ."""
        return 2 if self.log_square_factor else int(self.log_factor != 0.0)

    @property
    def sums(self) -> tuple[float | str, ...]:
        """Powers r of which mean ξ^r is needed, then ``"log"`` and ``"log_square"`` where their means are."""
        if self.kind == "polynomial":
            return tuple(float(k) for k in range(1, self.degree + 1))
        return (*self.exponents, *("log", "log_square")[: self.n_logs])

    @property
    def degree(self) -> int:
        """Highest power of a polynomial."""
        return max(len(piece) for piece in self.pieces) - 1

    @property
    def tail_powers(self) -> tuple[float, ...]:
        """Powers of abs(w) whose means must exist for the mean of the log-density to exist."""
        if self.kind == "powers":
            return self.exponents
        if self.kind == "logistic":
            return (1.0,)
        tails = (self.pieces[0], self.pieces[-1])
        return tuple(float(k) for k in range(1, self.degree + 1) if any(k < len(t) and t[k] for t in tails))

    def tails_fall(self, left: bool) -> bool:
        """Whether a polynomial tends to −∞ as w → ∞ and, if `left`, as w → −∞."""
        ends = [(self.pieces[-1], 1.0), (self.pieces[0], -1.0)][: 1 + left]
        leading = [(max((k for k, c in enumerate(p) if c != 0.0), default=0), p, sign) for p, sign in ends]
        return all(k > 0 and p[k] * sign**k < 0.0 for k, p, sign in leading)

    def compiled(self) -> _core.LogDensity:
        """Return the terms as the compiled module takes them, without `constant`."""
        degree = self.degree
        return _core.LogDensity(
            self.kind,
            self.centre,
            self.scale,
            math.log(self.scale),
            [[*piece, *[0.0] * (degree + 1 - len(piece))] for piece in self.pieces],
            list(self.knots),
            list(self.exponents),
            list(self.factors),
            self.n_logs,
            self.log_factor,
            self.log_square_factor,
            self.log_centre,
        )

    def log_density_and_slope(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-density without its constant, and its derivative, element-wise."""
        if self.kind == "logistic":
            x = (w - self.centre) / self.scale
            return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))) - math.log(self.scale), -np.tanh(x / 2) / self.scale
        if self.kind == "polynomial":
            x = w - self.centre
            piece = sum((x > knot for knot in self.knots), start=np.zeros(x.shape, dtype=np.intp))
            polynomials = [np.polynomial.Polynomial(p) for p in self.pieces]
            values = [np.choose(piece, [f(x) for f in fs]) for fs in (polynomials, [p.deriv() for p in polynomials])]
            return values[0], values[1]
        log_w = np.log(w)
        shifted, square = log_w - self.log_centre, self.log_square_factor
        value, slope = self.log_factor * log_w + square * shifted**2, self.log_factor + 2 * square * shifted
        for r, factor in zip(self.exponents, self.factors, strict=True):
            value = value + factor * w**r
            slope = slope + r * factor * w**r
        return value, slope / w

    def as_powers(self) -> Terms | None:
        """Return the same density on w > 0 as a sum of powers of w, or None where it is not one."""
        if self.kind == "powers":
            return self
        if self.kind != "polynomial" or any(knot + self.centre > 0.0 for knot in self.knots):
            return None
        polynomial = np.polynomial.Polynomial(self.pieces[-1])(np.polynomial.Polynomial([-self.centre, 1.0])).coef
        used = [(float(r), float(f)) for r, f in enumerate(polynomial) if r > 0 and f != 0.0]
        return Terms(
            "powers",
            support=self.support,
            constant=self.constant + float(polynomial[0]),
            exponents=tuple(r for r, _ in used),
            factors=tuple(f for _, f in used),
        )

    def as_polynomial(self) -> Terms | None:
        """Return the same density as a polynomial in w, or None where it is not one."""
        if self.kind == "polynomial":
            return self
        if self.kind != "powers" or self.n_logs or any(r != int(r) or r < 1 for r in self.exponents):
            return None
        coefficients = np.zeros(int(max(self.exponents)) + 1)
        coefficients[[int(r) for r in self.exponents]] = self.factors
        return Terms("polynomial", self.support, self.constant, pieces=(tuple(coefficients.tolist()),))

    def with_integers_first(self) -> Terms:
        """Return the same powers in the order of the kernels: positive integers first."""
        pairs = sorted(zip(self.exponents, self.factors, strict=True), key=lambda p: (p[0] < 0 or p[0] % 1 > 0, p[0]))
        return replace(self, exponents=tuple(r for r, _ in pairs), factors=tuple(f for _, f in pairs))
