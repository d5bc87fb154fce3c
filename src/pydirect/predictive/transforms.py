"""Increasing transforms of positive targets: logarithm and square root, the cases 0 and 1/2 of Box and Cox's family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_choice, as_number

TRANSFORMS = ("identity", "log", "sqrt")


@dataclass(frozen=True)
class TargetTransform:
    """Transform of the targets, z = t(y + shift), one per output.

    A model of z with Gaussian noise has relative noise in y for the logarithm, and noise whose variance is proportional
    to the mean for the square root, as counts have: Box and Cox (1964), *An analysis of transformations*, J. R. Stat.
    Soc. B 26, eq. 2.

    Parameters
    ----------
    names : sequence of {"identity", "log", "sqrt"}, one per output
        Names of the transforms.
    shifts : sequence of float, one per output
        What is added to the targets first; zero for the identity.

    Examples
    --------
    >>> transform = TargetTransform(["log", "sqrt"], [0.0, 0.5])
    >>> str(transform)
    'log(y), sqrt(y + 0.5)'
    >>> transform.forward([[1.0, 3.5]]).tolist()
    [[0.0, 2.0]]
    """

    names: tuple[str, ...]
    shifts: tuple[float, ...]

    def __post_init__(self) -> None:
        names = tuple(as_choice(name, f"names[{k}]", TRANSFORMS) for k, name in enumerate(self.names))
        shifts = tuple(as_number(shift, f"shifts[{k}]") for k, shift in enumerate(self.shifts))
        if len(names) != len(shifts) or not names:
            raise ValueError(f"names and shifts must be one per output, got {len(names)} and {len(shifts)}")
        if any(shift != 0.0 for name, shift in zip(names, shifts, strict=True) if name == "identity"):
            raise ValueError(f"shifts must be zero for the identity, got {shifts}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "shifts", shifts)

    def __str__(self) -> str:
        return ", ".join(map(_written, self.names, self.shifts))

    @property
    def is_identity(self) -> bool:
        """Whether no output is transformed."""
        return set(self.names) == {"identity"}

    def forward(self, y: ArrayLike) -> FloatArray:
        """Transform targets of shape (n_rows, n_outputs).

        Parameters
        ----------
        y : array_like of shape (n_rows, n_outputs)
            Targets.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Transformed targets.

        Raises
        ------
        ValueError
            If a target is not above minus its shift, where the logarithm and the square root have no density.
        """
        y = self._checked(y)
        return self._by_column(forward, y)

    def inverse(self, z: ArrayLike) -> FloatArray:
        """Undo `forward`; z of shape (n_rows, n_outputs, ...).

        Parameters
        ----------
        z : array_like of shape (n_rows, n_outputs, ...)
            Transformed targets.

        Returns
        -------
        ndarray of the shape of z
            Targets.
        """
        return self._by_column(inverse, np.asarray(z, dtype=np.float64))

    def log_derivative(self, y: ArrayLike) -> FloatArray:
        """Return log dz/dy, which a log density of z gains in units of y; shape (n_rows, n_outputs).

        Parameters
        ----------
        y : array_like of shape (n_rows, n_outputs)
            Targets.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Log derivatives.
        """
        return self._by_column(log_derivative, self._checked(y))

    def slope(self, y: ArrayLike) -> FloatArray:
        """Return dy/dz at targets y of shape (n_rows, n_outputs, ...): how fast `inverse` grows there.

        Parameters
        ----------
        y : array_like of shape (n_rows, n_outputs, ...)
            Targets.

        Returns
        -------
        ndarray of the shape of y
            Derivatives.
        """
        return self._by_column(slope, np.asarray(y, dtype=np.float64))

    def _by_column(self, function: Callable[[str, float, FloatArray], FloatArray], values: FloatArray) -> FloatArray:
        columns = zip(self.names, self.shifts, np.moveaxis(values, 1, 0), strict=True)
        return np.ascontiguousarray(np.stack([function(*column) for column in columns], axis=1))

    def _checked(self, y: ArrayLike) -> FloatArray:
        """Return the targets, or raise unless all of them can be transformed."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim != 2 or y.shape[1] != len(self.names):
            raise ValueError(f"y must have shape (n_rows, {len(self.names)}), got {y.shape}")
        for k, (name, shift) in enumerate(zip(self.names, self.shifts, strict=True)):
            lowest = y[:, k].min(initial=np.inf)
            if name != "identity" and not lowest > -shift:
                where = f" in output {k}" if len(self.names) > 1 else ""
                raise ValueError(
                    f"y must be greater than {-shift + 0.0:g} for {_written(name, shift)}, got {lowest:g}{where}"
                )
        return y


def forward(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return t(y + shift); minus infinity below the smallest possible value."""
    if name == "identity":
        return y
    above = np.maximum(y + shift, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(above) if name == "log" else np.where(y + shift >= 0.0, np.sqrt(above), -np.inf)


def inverse(name: str, shift: float, z: FloatArray) -> FloatArray:
    """Return the y with t(y + shift) = z; for the square root the smallest possible one where z is negative."""
    if name == "identity":
        return z
    with np.errstate(over="ignore"):
        return (np.exp(z) if name == "log" else np.maximum(z, 0.0) ** 2) - shift


def log_derivative(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return log dz/dy for y above minus the shift."""
    if name == "identity":
        return np.zeros_like(y)
    return -np.log(y + shift) if name == "log" else -0.5 * np.log(y + shift) - np.log(2.0)


def slope(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return dy/dz; zero at the smallest possible value of y."""
    if name == "identity":
        return np.ones_like(y)
    above = np.maximum(y + shift, 0.0)
    return above if name == "log" else 2.0 * np.sqrt(above)


def _written(name: str, shift: float) -> str:
    sign = "+" if shift > 0 else "-"
    argument = f"y {sign} {abs(shift):g}" if shift else "y"
    return argument if name == "identity" else f"{name}({argument})"
