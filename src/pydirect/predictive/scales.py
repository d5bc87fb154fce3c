"""Scales on which targets are modelled: z = g((y + shift) / width), increasing, with an inverse and a derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator
from scipy.special import expit, logit

from pydirect._validation import FloatArray, as_choice, as_number, shown

N_KNOTS, N_BISECTIONS = 513, 60
# exp of more overflows in products.
LARGEST_EXPONENT = 300.0


class _Family(NamedTuple):
    """g, its inverse, log g', and the range of u."""

    forward: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    log_derivative: Callable[[FloatArray], FloatArray]
    low: float = -np.inf
    high: float = np.inf


def _exponent(z: FloatArray) -> FloatArray:
    return np.clip(z, -LARGEST_EXPONENT, LARGEST_EXPONENT)


_FAMILIES = {
    "identity": _Family(lambda u: u, lambda z: z, np.zeros_like),
    "log": _Family(np.log, lambda z: np.exp(_exponent(z)), lambda u: -np.log(u), 0.0),
    "sqrt": _Family(np.sqrt, lambda z: np.maximum(z, 0.0) ** 2, lambda u: -0.5 * np.log(u) - np.log(2.0), 0.0),
    "cbrt": _Family(np.cbrt, lambda z: np.maximum(z, 0.0) ** 3, lambda u: -2 / 3 * np.log(u) - np.log(3.0), 0.0),
    "logit": _Family(logit, expit, lambda u: -np.log(u) - np.log1p(-u), 0.0, 1.0),
    "asinh": _Family(np.arcsinh, lambda z: np.sinh(_exponent(z)), lambda u: -np.log(np.hypot(1.0, u))),
}
SCALES = (*_FAMILIES, "table")


@dataclass(frozen=True)
class TargetScale:
    """One scale of a target: z = g((y + shift) / width).

    Parameters
    ----------
    name : {"identity", "log", "sqrt", "cbrt", "logit", "asinh", "table"}
        g: the logarithm, a square or cube root, log(u/(1 − u)), the inverse of sinh, or a cubic through `knots`.
    shift : float, default=0.0
        What is added to y first; minus the lower bound for ``"logit"``.
    width : float, default=1.0
        By what the sum is divided; the distance of the bounds for ``"logit"``.
    knots : tuple of tuple of float, default=()
        Values of u, increasing, and of g, of a ``"table"``; beyond them it goes on straight.

    Examples
    --------
    >>> from pydirect.predictive import TargetScale
    >>> percent = TargetScale("logit", width=100.0)
    >>> float(percent.inverse(0.0)), str(percent)
    (50.0, 'logit(y / 100)')
    """

    name: str
    shift: float = 0.0
    width: float = 1.0
    knots: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        as_choice(self.name, "name", SCALES)
        object.__setattr__(self, "shift", as_number(self.shift, "shift"))
        object.__setattr__(self, "width", as_number(self.width, "width", above=0.0))
        if self.name == "identity" and (self.shift, self.width) != (0.0, 1.0):
            raise ValueError(f"shift and width must be 0 and 1 for the identity, got {self.shift} and {self.width}")
        if (self.name == "table") != bool(self.knots):
            raise ValueError("knots must be given for a table, and only there")
        if self.knots:
            object.__setattr__(self, "knots", tuple(tuple(map(float, own)) for own in self.knots))
            if len(self.knots) != 2 or not (np.diff(self.knots) > 0).all():
                raise ValueError("knots must be two increasing sequences of the same length")

    def __str__(self) -> str:
        if self.name == "table":
            return "t(y)"
        argument = f"y {'+' if self.shift > 0 else '-'} {abs(self.shift):.4g}" if self.shift else "y"
        if self.width != 1.0:
            argument = f"({argument}) / {self.width:.4g}" if self.shift else f"y / {self.width:.4g}"
        return argument if self.name == "identity" else f"{self.name}({argument})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_family"}

    @classmethod
    def of_transformer(cls, transformer: Any, y: FloatArray) -> TargetScale:
        """Read a fitted scikit-learn transformer off at knots about targets, (n_rows,)."""
        low, high = float(y.min()), float(y.max())
        reach = (high - low) or abs(high) or 1.0
        middle = np.unique(np.quantile(y, np.linspace(0.0, 1.0, N_KNOTS // 2)))
        knots = np.unique(np.concatenate([np.linspace(low - reach, high + reach, N_KNOTS), middle]))
        with np.errstate(all="ignore"):
            z = np.asarray(transformer.transform(knots[:, None]), dtype=np.float64)[:, 0]
        # Far outside of its rows a transformer may stop; inside of them it may not.
        usable = np.isfinite(z) & (np.diff(z, prepend=-np.inf) > 1e-12 * (np.nanmax(np.abs(z)) or 1.0))
        inside = (knots >= low) & (knots <= high)
        if (usable & inside).sum() < max(2, 0.5 * inside.sum()):
            raise ValueError(f"target_transform must be finite and increase with y, got {shown(transformer)}")
        # Beyond the first gap on either side nothing is used.
        first, last = np.flatnonzero(usable & inside)[[0, -1]]
        used = usable.copy()
        used[:first] &= np.logical_and.accumulate(usable[:first][::-1])[::-1]
        used[last:] &= np.logical_and.accumulate(usable[last:])
        return cls("table", knots=(tuple(knots[used]), tuple(z[used])))

    # --- the possible values of y

    @property
    def lowest(self) -> float:
        """Lowest possible value of y, or the bound below it."""
        return self._family.low * self.width - self.shift

    @property
    def highest(self) -> float:
        """Bound of y above."""
        return self._family.high * self.width - self.shift

    def allows(self, y: FloatArray) -> bool:
        """Whether all targets are between the bounds."""
        return bool((y > self.lowest).all() and (y < self.highest).all())

    # --- there and back

    def forward(self, y: ArrayLike) -> FloatArray:
        """Return z; infinite outside of the possible values."""
        u, own = self._u(y), self._family
        with np.errstate(divide="ignore", invalid="ignore"):
            z = own.forward(np.clip(u, own.low, own.high))
        z = np.where(u < own.low, -np.inf, z) if own.low > -np.inf else z
        return np.asarray(np.where(u > own.high, np.inf, z) if own.high < np.inf else z)

    def inverse(self, z: ArrayLike) -> FloatArray:
        """Return the y that z comes from; the lowest possible one where a root is negative."""
        u = self._family.inverse(np.asarray(z, dtype=np.float64))
        return np.asarray(self.width * u - self.shift)

    def log_derivative(self, y: ArrayLike) -> FloatArray:
        """Return log dz/dy between the bounds, which a log density of z gains in units of y."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self._family.log_derivative(self._u(y)) - np.log(self.width))

    def slope(self, y: ArrayLike) -> FloatArray:
        """Return dy/dz; zero at the bounds of y."""
        own = self._family
        u = np.clip(self._u(y), own.low, own.high)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.asarray(self.width * np.exp(-own.log_derivative(u)))

    def _u(self, y: ArrayLike) -> FloatArray:
        return np.asarray((np.asarray(y, dtype=np.float64) + self.shift) / self.width)

    @cached_property
    def _family(self) -> _Family:
        return _FAMILIES[self.name] if self.name != "table" else _Knots(*map(np.array, self.knots)).family


class _Knots:
    """A monotone cubic u(z) through knots, straight beyond them, and its inverse by bisection."""

    def __init__(self, u: FloatArray, z: FloatArray) -> None:
        self.u, self.z, self.cubic = u, z, PchipInterpolator(z, u)
        self.rate = self.cubic.derivative()
        secants = np.diff(u) / np.diff(z)
        self.ends = np.maximum(self.rate(z[[0, -1]]), 1e-3 * secants[[0, -1]])
        self.family = _Family(self.forward, self.inverse, self.log_derivative)

    def inverse(self, z: FloatArray) -> FloatArray:
        inside = np.clip(z, self.z[0], self.z[-1])
        beyond = z - inside
        return np.asarray(self.cubic(inside) + beyond * np.where(beyond < 0, *self.ends))

    def forward(self, u: FloatArray) -> FloatArray:
        inside = np.clip(u, self.u[0], self.u[-1])
        place = np.clip(np.searchsorted(self.u, inside, side="right"), 1, len(self.u) - 1)
        low, high = self.z[place - 1], self.z[place]
        for _ in range(N_BISECTIONS):
            middle = 0.5 * (low + high)
            below = self.cubic(middle) < inside
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        beyond = u - inside
        return np.asarray(0.5 * (low + high) + beyond / np.where(beyond < 0, *self.ends))

    def log_derivative(self, u: FloatArray) -> FloatArray:
        z = self.forward(u)
        rate = np.where(z < self.z[0], self.ends[0], np.where(z > self.z[-1], self.ends[1], self.rate(z)))
        return np.asarray(-np.log(np.maximum(rate, 1e-3 * self.ends.min())))
