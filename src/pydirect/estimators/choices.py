"""What estimators are asked for beyond a name: feature maps and posteriors with their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from pydirect._validation import as_choice, as_count, as_flag
from pydirect.direct.mixture_posterior import ENTROPIES, as_component_count
from pydirect.direct.sequential import LEVEL_SCALES, as_own_levels
from pydirect.distributions.categorical import LEVEL_SHAPES, as_level_count
from pydirect.distributions.priors import DensityPrior, MixturePrior, SpikeAndSlabPrior, as_prior
from pydirect.optimize.quadratic import OPTIMIZERS

BLOCK_DTYPES = ("float64", "float32")


class Choice(BaseEstimator):
    """An object that stands for a parameter: compared by its fields, cloned and searched as estimators are."""

    def check(self) -> None:
        """Raise unless all fields have their types and ranges."""


@dataclass
class Nystroem(Choice):
    """Kernel functions at training rows, the exact Gaussian process if there are no more rows than functions.

    The kernel is a level, a linear part, a Matérn part with a length-scale per column, and a rough part: isotropic or,
    in regression where it gains more than 10 nats and .02 a row (``search_.product_gain``), a product over columns with
    a length-scale each, for functions with steps along single columns. Then predictions have derivatives almost
    everywhere only.

    Parameters
    ----------
    rank_inputs : bool, optional
        Whether the kernel has every column twice: standardised, and as its normal scores. By default for targets that
        are numbers; for classes and counts only columns in which one row in a hundred carries nearly all variance.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    max_search_rows : int, default=1000
        Largest number of rows in the exact marginal likelihood that finds the kernel's hyperparameters. Regression
        on 600 rows or more also sees up to 4000 by their nearest ones, and takes the likelier kernel.
    block_dtype : {"float64", "float32"}, default="float64"
        Precision of products within a block of rows; sums are float64 always. Single precision halves the time of sums
        over rows of Fourier features. Its rounding, about 2e-7 of the largest diagonal entry of ΦᵀΦ, hides directions
        that carry less.
    """

    rank_inputs: bool | None = None
    length_scale: float | ArrayLike | None = None
    max_search_rows: int = 1000
    block_dtype: str = "float64"

    def check(self) -> None:
        if self.rank_inputs is not None:
            as_flag(self.rank_inputs, "rank_inputs")
        if isinstance(self.length_scale, str):
            raise TypeError(
                "length_scale must be None, which learns it from the rows, or positive numbers in units of X's "
                f"columns, got {self.length_scale!r}"
            )
        as_count(self.max_search_rows, "max_search_rows", 2)
        as_choice(self.block_dtype, "block_dtype", BLOCK_DTYPES)


@dataclass
class Fourier(Nystroem):
    """Random Fourier features of the same kernel: cheaper for very many rows, for prediction and on devices.

    Parameters
    ----------
    rank_inputs : bool, optional
        As of `Nystroem`.
    length_scale : float or array_like of shape (n_features_in,), optional
        As of `Nystroem`.
    max_search_rows : int, default=1000
        As of `Nystroem`.
    block_dtype : {"float64", "float32"}, default="float64"
        As of `Nystroem`.
    """


@dataclass
class Polynomial(Choice):
    """All products of columns up to a degree.

    Parameters
    ----------
    degree : int, default=2
        Largest number of factors.
    block_dtype : {"float64", "float32"}, default="float64"
        As of `Nystroem`.
    """

    degree: int = 2
    block_dtype: str = "float64"

    def check(self) -> None:
        as_count(self.degree, "degree")
        as_choice(self.block_dtype, "block_dtype", BLOCK_DTYPES)


@dataclass
class Gaussian(Choice):
    """Continuous Gaussian weights, with the noise variance inferred together with them.

    Parameters
    ----------
    n_noise_levels : int, default=15
        Number of values that an inferred noise variance can take; 1 fixes it where the evidence is largest.
    """

    n_noise_levels: int = 15

    def check(self) -> None:
        as_count(self.n_noise_levels, "n_noise_levels")


@dataclass
class Sequential(Choice):
    """Weights of the basis functions themselves on a few levels, drawn one after another, each given those before it.

    Parameters
    ----------
    n_levels : int, default=15
        Number of values that a weight can take; 16 or fewer fit into 4 bits. Odd with own level scales.
    n_draws : int, default=64
        Number of stored draws, two or more, half a byte per weight each; predictions are their moments.
    prior : str or Prior, default="gaussian"
        Prior of each weight, in units of its prior standard deviation: ``"gaussian"``, ``"laplace"``, ``"student_t"``,
        ``"spike_and_slab"``, or an object with ``log_mass(levels)``.
    levels : {"even", "power_of_two"} or array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Evenly spaced by default; ``"power_of_two"``, 0 and ± powers of two, so that devices multiply by shifts. In
        units of the prior standard deviation where all weights share them, of any unit where scales are own.
    level_scales : {"auto", "own", "centred", "shared"}, default="auto"
        Scales of the levels. ``"own"``: a power of two per weight. ``"centred"``: the same about each weight's
        posterior mean: no weight is then zero, and devices need floating point. ``"shared"``: the prior standard
        deviation for all. ``"auto"`` is ``"own"``, or in regression ``"centred"`` where that would lose more than five
        nats per weight.
    keep_factor : bool, default=False
        Whether the factor of the posterior is stored, 8 bytes per pair of weights in memory and in files: draws are
        then as many as are asked for, and predictions under the Gaussian prior the exact moments of continuous weights.
    """

    n_levels: int = 15
    n_draws: int = 64
    prior: Any = "gaussian"
    levels: ArrayLike | str | None = None
    level_scales: str = "auto"
    keep_factor: bool = False

    def check(self) -> None:
        as_level_count(self.n_levels)
        as_count(self.n_draws, "n_draws", 2)  # one has no variance
        as_flag(self.keep_factor, "keep_factor")
        as_choice(self.level_scales, "level_scales", ("auto", *LEVEL_SCALES))
        if isinstance(self.levels, str):
            as_choice(self.levels, "levels", tuple(LEVEL_SHAPES))
        if isinstance(self.prior, MixturePrior):
            raise ValueError(
                "prior must factorise over the weights, not be a MixturePrior, with posterior='sequential'; use "
                "posterior=MeanField(prior=...)"
            )
        prior = as_prior(self.prior)
        if self.level_scales != "shared":
            as_own_levels(self.unit_levels, self.n_levels)
            if not isinstance(prior, DensityPrior | SpikeAndSlabPrior):
                raise ValueError("prior must have a density unless level_scales='shared'")

    @property
    def unit_levels(self) -> Any:
        """Levels in units of the prior standard deviation, or None for evenly spaced ones."""
        return LEVEL_SHAPES[self.levels](self.n_levels) if isinstance(self.levels, str) else self.levels


@dataclass
class MeanField(Choice):
    """Independent weights on shared levels, or mixtures of such posteriors: the published method.

    Parameters
    ----------
    n_levels : int, default=15
        Number of values that a weight can take; 16 or fewer fit into 4 bits.
    prior : str or Prior, default="gaussian"
        As of `Sequential`; also a `pydirect.MixturePrior`, which does not factorise: its ``groups`` are one number per
        weight or, for ``features="linear"``, one per column of X, and the constant is then never switched off.
    levels : {"even", "power_of_two"} or array_like of shape (n_levels,) or (n_weights, n_levels), optional
        As of `Sequential`.
    n_components : int, default=1
        Number of components: more than one make the posterior a mixture, which represents correlations between
        weights; see `pydirect.fit_mixture`. Regression only.
    entropy : {"pairwise", "taylor", "stochastic"}, default="pairwise"
        How the entropy of a mixture is bounded.
    n_noise_levels : int, default=15
        Number of values of the noise variance with ``noise="grid"``.
    optimizer : str, default="pipeline"
        See `pydirect.fit_mean_field`.
    """

    n_levels: int = 15
    prior: Any = "gaussian"
    levels: ArrayLike | str | None = None
    n_components: int = 1
    entropy: str = "pairwise"
    n_noise_levels: int = 15
    optimizer: str = "pipeline"

    def check(self) -> None:
        as_level_count(self.n_levels)
        as_prior(self.prior)
        if isinstance(self.levels, str):
            as_choice(self.levels, "levels", tuple(LEVEL_SHAPES))
        as_component_count(self.n_components)
        as_choice(self.entropy, "entropy", ENTROPIES)
        as_count(self.n_noise_levels, "n_noise_levels")
        as_choice(self.optimizer, "optimizer", OPTIMIZERS)


FEATURE_CHOICES = {"nystroem": Nystroem, "fourier": Fourier, "polynomial": Polynomial}
FEATURES = ("auto", "nystroem", "fourier", "linear", "polynomial", "precomputed")
POSTERIORS: dict[str, type[Any]] = {"gaussian": Gaussian, "sequential": Sequential, "mean_field": MeanField}


def as_posterior(value: Any) -> Gaussian | Sequential | MeanField:
    """Return the object that a name or an object stands for, checked."""
    if isinstance(value, str):
        value = POSTERIORS[as_choice(value, "posterior", tuple(POSTERIORS))]()
    if not isinstance(value, Gaussian | Sequential | MeanField):
        names = ", ".join(c.__name__ for c in POSTERIORS.values())
        raise TypeError(f"posterior must be a name or an object of {names}, got {value!r}")
    value.check()
    return value


def as_features(value: Any, posterior: Choice) -> tuple[str, Any]:
    """Return the kind of feature map, and the object with its options or the transformer itself."""
    if isinstance(value, str):
        kind = as_choice(value, "features", FEATURES)
        if kind == "auto":
            kind = "nystroem" if isinstance(posterior, Gaussian) else "fourier"
        return kind, FEATURE_CHOICES.get(kind, Choice)()
    if isinstance(value, Choice):
        kinds = {cls: name for name, cls in FEATURE_CHOICES.items()}
        if type(value) not in kinds:
            raise TypeError(f"features must be a name, Nystroem, Fourier, Polynomial or a transformer, got {value!r}")
        value.check()
        return kinds[type(value)], value
    if not hasattr(value, "transform"):
        raise TypeError(f"features must be a name or a transformer, got {value!r}")
    return "transformer", value
