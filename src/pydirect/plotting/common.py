"""What displays share: colours, axes, and checks of what they are given."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from pydirect.predictive.gaussian_mixture import FloatArray, finite_array

# Okabe and Ito's palette, distinguishable with all common colour vision deficiencies.
BLUE, VERMILION, BAND, INK = "#0072B2", "#D55E00", "#BFD9EA", "#333333"
SERIES = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def axes_of(display: object, ax: Any, figsize: tuple[float, float], **kwargs: Any) -> Any:
    """Return the given axes or new ones."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        hint = 'Install it with: pip install "pydirect[plot]"'
        raise ImportError(f"{type(display).__name__} requires matplotlib. {hint}") from error
    return plt.subplots(figsize=figsize, layout="constrained", **kwargs)[1] if ax is None else ax


def finish(ax: Any, legend: str) -> tuple[Any, Any]:
    """Remove spines, place the legend "above" the axes or at its best location; return the axes and their figure."""
    ax.spines[["top", "right"]].set_visible(False)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2} if legend == "above" else {"loc": legend}
    ax.legend(frameon=False, fontsize="small", **place)
    return ax, ax.figure


def check_output(output: int, count: int) -> int:
    """Return the index of one of `count` outputs, or raise."""
    if not 0 <= output < count:
        raise ValueError(f"output must be between 0 and {count - 1}, got {output}")
    return output


def fitted(estimator: Any, attribute: str) -> Any:
    """Return a fitted attribute, also from within finished searches and pipelines."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    estimator = estimator[-1] if isinstance(getattr(estimator, "steps", None), list) else estimator
    if not hasattr(estimator, attribute):
        raise AttributeError(f"estimator must be fitted and have {attribute}, got {type(estimator).__name__} without")
    return getattr(estimator, attribute)


def vector(name: str, value: ArrayLike, size: int | None = None) -> FloatArray:
    """Return a vector of finite numbers, or raise."""
    array = finite_array(name, value)
    if array.ndim != 1 or size not in (None, array.size):
        raise ValueError(f"{name} must be a vector{'' if size is None else f' of length {size}'}, got {array.shape}")
    return array


def check_kind(kind: str, options: tuple[str, ...]) -> None:
    """Raise unless the kind is one of the options."""
    if kind not in options:
        raise ValueError(f"kind must be one of {', '.join(options)}, got {kind!r}")
