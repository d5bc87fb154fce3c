"""What estimators are asked for: objects with options, and plans that are checked at the door."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from pydirect._documentation import described_by
from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_number, as_verbosity, shown
from pydirect.direct.mixture_posterior import ENTROPIES, as_component_count
from pydirect.direct.sequential import LEVEL_SCALES, Lattice, as_own_levels
from pydirect.distributions.categorical import as_level_count
from pydirect.distributions.priors import DensityPrior, MixturePrior, SpikeAndSlabPrior, as_prior
from pydirect.estimators.target_transform import as_scales
from pydirect.features.basis import Basis
from pydirect.features.fitting import OWN_KERNEL, FeaturePlan
from pydirect.features.own_kernel import as_kernel
from pydirect.noise.student_t import within_reach
from pydirect.optimize.quadratic import OPTIMIZERS
from pydirect.tables.columns import as_columns

NOISE_OF_ROWS = ("varying", "student_t")
NOISES = ("auto", "constant", "grid", *NOISE_OF_ROWS)
BLOCK_DTYPES = ("float64", "float32")


class Choice(BaseEstimator):
    """An object that stands for a parameter: compared by its fields, cloned and searched as estimators are."""

    def check(self) -> None:
        """Raise unless all fields have their types and ranges."""


@dataclass
class Nystroem(Choice):
    """Kernel functions at training rows, the exact Gaussian process where all rows are taken.

    They are up to `n_basis_functions` of the rows. With a learned kernel, `DirectRegressor.fit` to 1024 rows or more
    begins with 512, see there; with a `length_scale` or a `kernel` it takes all that it may.

    The kernel is a level, a linear part, a Matérn part with a length-scale per column, whose smoothness is chosen up
    to its limit, the squared exponential, in regression, and a rough part: isotropic or, in regression where it gains
    more than 10 nats and .02 a row (``search_.product_gain``), a product over columns with a length-scale each, for
    functions with steps along single columns. Then predictions have derivatives almost everywhere only.

    Parameters
    ----------
    rank_inputs : bool, optional
        Whether the kernel has every column twice: standardised, and as its normal scores. By default for targets that
        are numbers; for classes and counts only columns in which one row in a hundred carries nearly all variance.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    max_search_rows : int, default=1000
        Largest number of rows in the exact marginal likelihood that finds the kernel's hyperparameters; in regression
        those beyond 512 serve parts along columns alone. Regression on 600 rows or more goes on from there by densities
        of up to 4000 rows given their nearest ones.
    block_dtype : {"float64", "float32"}, default="float64"
        Precision of products within a block of rows; sums are float64 always. Single precision halves the time of sums
        over rows of Fourier features. Its rounding, about 2e-7 of the largest diagonal entry of ΦᵀΦ, hides directions
        that carry less.
    kernel : sklearn.gaussian_process.kernels.Kernel, optional
        A custom kernel in place of all this, for `DirectRegressor`: of the columns and of y in their units, as
        `GaussianProcessRegressor` takes it, with its hyperparameters as a start and within their bounds. A
        ``WhiteKernel`` is a start for the noise, which is found in any case.

    Examples
    --------
    >>> from pydirect import DirectRegressor, Nystroem
    >>> model = DirectRegressor(Nystroem(length_scale=[0.5, 2.0]))  # known length-scales of two columns
    """

    rank_inputs: bool | None = None
    length_scale: float | ArrayLike | None = None
    max_search_rows: int = 1000
    block_dtype: str = "float64"
    kernel: Any = None

    def check(self) -> None:
        if self.rank_inputs is not None:
            as_flag(self.rank_inputs, "rank_inputs")
        if isinstance(self.length_scale, str):
            raise TypeError(f"length_scale must be None or positive numbers, got {self.length_scale!r}")
        as_count(self.max_search_rows, "max_search_rows", 2)
        as_choice(self.block_dtype, "block_dtype", BLOCK_DTYPES)
        if self.kernel is not None:
            as_kernel(self.kernel)
            if type(self) is not Nystroem:
                raise ValueError("kernel must be None for Fourier features: use Nystroem(kernel=...)")
            if self.rank_inputs or self.length_scale is not None:
                raise ValueError("rank_inputs and length_scale must be left out with a kernel, which has its own")


@described_by(Nystroem)
@dataclass
class Fourier(Nystroem):
    """Random Fourier features of the same kernel but parts along columns: for very many rows and on devices.

    Examples
    --------
    >>> from pydirect import DirectRegressor, Fourier
    >>> model = DirectRegressor(Fourier(block_dtype="float32"))
    """


@described_by(Nystroem)
@dataclass
class Polynomial(Choice):
    """All products of columns up to a degree.

    Parameters
    ----------
    degree : int, default=2
        Largest number of factors.

    Examples
    --------
    >>> from pydirect import DirectRegressor, Polynomial
    >>> model = DirectRegressor(Polynomial(degree=3))
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

    Examples
    --------
    >>> from pydirect import DirectRegressor, Gaussian
    >>> model = DirectRegressor(posterior=Gaussian(n_noise_levels=1))  # the noise variance of the largest evidence
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
    levels : array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Evenly spaced by default. In units of the prior standard deviation where all weights share them, of any unit
        where scales are own.
    level_scales : {"auto", "own", "centred", "shared"}, default="auto"
        Scales of the levels. ``"own"``: a power of two per weight. ``"centred"``: the same about each weight's
        posterior mean: no weight is then zero, devices need floating point, and the ELBO of few such levels may lie
        above the evidence of continuous weights. ``"shared"``: the prior standard deviation for all. ``"auto"`` is
        ``"own"``, or in regression ``"centred"`` where that would lose more than five nats per weight.
    keep_factor : bool, default=False
        Whether the factor of the posterior is stored, 8 bytes per pair of weights in memory and in files: draws are
        then as many as are asked for, and predictions under the Gaussian prior the exact moments of continuous weights.

    Examples
    --------
    >>> from pydirect import DirectRegressor, Sequential
    >>> model = DirectRegressor(posterior=Sequential(n_levels=7, prior="laplace", n_draws=16))
    """

    n_levels: int = 15
    n_draws: int = 64
    prior: Any = "gaussian"
    levels: ArrayLike | None = None
    level_scales: str = "auto"
    keep_factor: bool = False

    def check(self) -> None:
        as_level_count(self.n_levels)
        prior = as_prior(self.prior)
        as_count(self.n_draws, "n_draws", 2)  # one has no variance
        as_flag(self.keep_factor, "keep_factor")
        as_choice(self.level_scales, "level_scales", ("auto", *LEVEL_SCALES))
        if isinstance(prior, MixturePrior):
            raise ValueError("prior must factorise over the weights: use posterior=MeanField(prior=...)")
        if self.level_scales != "shared":
            as_own_levels(self.levels, self.n_levels)
            if not isinstance(prior, DensityPrior | SpikeAndSlabPrior):
                raise ValueError("prior must have a density unless level_scales='shared'")


def lattice_of(posterior: Sequential, basis: Basis) -> Lattice:
    """Return what draws weights of basis functions; cosines and sines of one frequency share a scale."""
    scales = "own" if posterior.level_scales == "auto" else posterior.level_scales
    levels = as_prior(posterior.prior), posterior.n_levels, posterior.levels, scales
    return Lattice(*levels, getattr(basis.map, "pairs", None), posterior.n_draws, posterior.keep_factor)


@described_by(Sequential)
@dataclass
class MeanField(Choice):
    """Independent weights on shared levels, or mixtures of such posteriors: the published method.

    Parameters
    ----------
    prior : str or Prior, default="gaussian"
        As of `Sequential`; also a `pydirect.MixturePrior`, which does not factorise: its ``groups`` are one number per
        weight or, for ``features="linear"``, one per column of X, and the constant is then never switched off.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels), optional
        As of `Sequential`.
    n_components : int, default=1
        Number of components: more than one make the posterior a mixture, which represents correlations between
        weights; see `pydirect.fit_mixture`. Regression only.
    entropy : {"pairwise", "taylor"}, default="pairwise"
        How the entropy of a mixture is bounded.
    n_noise_levels : int, default=15
        Number of values of the noise variance with ``noise="grid"``.
    optimizer : str, default="pipeline"
        See `pydirect.fit_mean_field`.

    Examples
    --------
    >>> from pydirect import DirectRegressor, MeanField
    >>> model = DirectRegressor(posterior=MeanField(n_levels=7, n_components=4))
    """

    n_levels: int = 15
    prior: Any = "gaussian"
    levels: ArrayLike | None = None
    n_components: int = 1
    entropy: str = "pairwise"
    n_noise_levels: int = 15
    optimizer: str = "pipeline"

    def check(self) -> None:
        as_level_count(self.n_levels)
        as_prior(self.prior)
        as_component_count(self.n_components)
        as_choice(self.entropy, "entropy", ENTROPIES)
        as_count(self.n_noise_levels, "n_noise_levels")
        as_choice(self.optimizer, "optimizer", OPTIMIZERS)


CHOICES = Nystroem, Fourier, Polynomial, Gaussian, Sequential, MeanField
FEATURE_CHOICES = {"nystroem": Nystroem, "fourier": Fourier, "polynomial": Polynomial}
FEATURES = ("auto", "nystroem", "fourier", "linear", "polynomial", "precomputed")
POSTERIORS: dict[str, type[Any]] = {"gaussian": Gaussian, "sequential": Sequential, "mean_field": MeanField}


def as_posterior(value: Any) -> Gaussian | Sequential | MeanField:
    """Return the object that a name or an object stands for, checked."""
    if isinstance(value, str):
        value = POSTERIORS[as_choice(value, "posterior", tuple(POSTERIORS))]()
    if not isinstance(value, Gaussian | Sequential | MeanField):
        raise TypeError(f"posterior must be a name or an object of Gaussian, Sequential, MeanField, got {value!r}")
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
        return OWN_KERNEL if getattr(value, "kernel", None) is not None else kinds[type(value)], value
    if not hasattr(value, "transform"):
        raise TypeError(f"features must be a name or a transformer, got {value!r}")
    return "transformer", value


# --- plans


@dataclass(frozen=True)
class RegressionPlan:
    """What a regressor's parameters ask for, checked. ``local`` is None, "auto" or a number of neighbours.

    ``transform`` is as of `as_scales`; "auto" is chosen by `fit` of rows, and is y's own scale elsewhere.
    """

    features: FeaturePlan
    posterior: Gaussian | Sequential | MeanField
    transform: Any = None
    noise: str | float = "auto"
    local: str | int | None = "auto"
    block_dtype: str = "float64"
    max_iter: int = 1000
    random_state: Any = 0

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.posterior, Gaussian)

    @property
    def reach(self) -> Callable[[FloatArray], FloatArray] | None:
        """What clips targets: outliers must not set their scale."""
        return within_reach if self.noise == "student_t" else None

    def generators(self) -> tuple[np.random.Generator, np.random.Generator]:
        """Return the generator of the feature map, and that of what comes later."""
        rng = generator_of(self.random_state)
        return rng, rng.spawn(1)[0]


def generator_of(random_state: Any) -> np.random.Generator:
    """Return the generator that a checked seed or RandomState stands for."""
    state = random_state if hasattr(random_state, "randint") else np.random.RandomState(random_state)
    return np.random.default_rng(state.randint(2**31))


class BasisParameters(Protocol):
    """Parameters of all estimators of basis functions."""

    features: Any
    n_basis_functions: int
    columns: Any
    random_state: Any
    verbose: int


class RegressionParameters(BasisParameters, Protocol):
    """Those of regressors besides."""

    posterior: Any
    noise: Any
    local: Any
    target_transform: Any
    max_iter: int


def feature_plan(
    model: BasisParameters, posterior: Choice, rank_inputs: bool | None, *, own_kernel: bool = False
) -> tuple[FeaturePlan, str]:
    """Return the plan of an estimator's features, and the precision of blocks of rows."""
    kind, chosen = as_features(model.features, posterior)
    n_functions = as_count(model.n_basis_functions, "n_basis_functions", 2)
    if kind == OWN_KERNEL and not own_kernel:
        raise ValueError(f"kernel must be None for {type(model).__name__}: it is for DirectRegressor")
    options: dict[str, Any] = {"transformer": lambda: clone(chosen)}
    if isinstance(chosen, Choice):
        options = chosen.get_params(deep=False)
    block_dtype = options.pop("block_dtype", "float64")
    if isinstance(chosen, Nystroem):
        options["own_kernel"] = options.pop("kernel")
        options["rank_inputs"] = rank_inputs if chosen.rank_inputs is None else chosen.rank_inputs
    plan = FeaturePlan(kind, n_functions, **options)
    return replace(plan, parameters=recorded(model, plan, chosen)), block_dtype


def recorded(model: BasisParameters, plan: FeaturePlan, chosen: Any) -> dict[str, Any]:
    """What a fixed feature map depends on, comparable by equality."""
    used: dict[str, Any] = {"features": type(chosen) if plan.kind == "transformer" else plan.kind}
    if hasattr(chosen, "get_params"):
        options = chosen.get_params(deep=not isinstance(chosen, Choice))
        used |= {f"features__{name}": value for name, value in options.items() if name != "block_dtype"}
    if isinstance(chosen, Nystroem):
        scales = np.asarray(chosen.length_scale)
        held = scales.ravel().tolist()  # a scalar is equivalent to equal values for all columns
        used["features__length_scale"] = held[0] if len(set(held)) == 1 else scales.tolist()
        used |= {"n_basis_functions": plan.n_functions, "random_state": model.random_state}
    if plan.kind == OWN_KERNEL:
        used["features__kernel"] = str(joblib.hash(plan.own_kernel))
    if plan.takes_tables:
        used["columns"] = repr(sorted(as_columns(model.columns).get_params(deep=False).items()))
    if hasattr(model, "target_transform"):
        used["target_transform"] = model.target_transform
    return {name: content(value) for name, value in used.items()}


def changed_features(features: Any, plan: FeaturePlan, fixed: Basis) -> list[str]:
    """Parameters on which a fixed feature map depends, and which are others now."""
    now, then = plan.parameters, fixed.parameters
    changed = [name for name in now if name in then and now[name] != then[name]]
    if changed[:1] == ["features"] and isinstance(features, str) and features == "auto":
        changed[0] = "posterior (on which features='auto' depends)"
    return changed


def require_same_features(features: Any, plan: FeaturePlan, fixed: Basis) -> None:
    """Raise where a fixed feature map is of other parameters."""
    changed = changed_features(features, plan, fixed)
    if changed:
        raise ValueError(f"{', '.join(changed)} must be as when the feature map was fixed, or start again with fit")


def regression_plan(model: RegressionParameters) -> RegressionPlan:
    """Return the plan of a regressor, or raise where its parameters are wrong or do not fit together."""
    posterior = as_posterior(model.posterior)
    features, block_dtype = feature_plan(model, posterior, rank_inputs=True, own_kernel=True)
    check_common(model)
    noise, transform = model.noise, model.target_transform
    as_scales(transform)
    if isinstance(noise, str):
        as_choice(noise, "noise", NOISES)
    else:
        noise = as_number(noise, "noise", above=0.0)
    if noise == "grid" and not isinstance(posterior, MeanField):
        raise ValueError("noise='grid' is for posterior='mean_field', use 'constant'")
    if noise in NOISE_OF_ROWS and not isinstance(posterior, Gaussian):
        raise ValueError(f"noise={noise!r} needs posterior='gaussian', got {model.posterior!r}")
    if features.kind == OWN_KERNEL and transform == "auto":
        transform = None  # the kernel is of y in its own units
    local, max_iter = _local(model.local), as_count(model.max_iter, "max_iter")
    plan = RegressionPlan(features, posterior, transform, noise, local, block_dtype, max_iter, model.random_state)
    obstacle = may_be_local(plan)
    if obstacle and plan.local not in (None, "auto"):
        raise ValueError(f"local must be 'auto' or False with {obstacle}, got {shown(model.local)}")
    return plan


def check_common(model: BasisParameters) -> None:
    """Check the parameters that all estimators of basis functions have."""
    as_verbosity(model.verbose)
    as_columns(model.columns)
    if hasattr(model.random_state, "randint"):
        return
    try:
        check_random_state(model.random_state)
    except ValueError:
        message = f"an integer from 0 to 2**32 - 1, a RandomState or None, got {shown(model.random_state)}"
        raise ValueError(f"random_state must be {message}") from None


def _local(local: Any) -> str | int | None:
    if local is False or (isinstance(local, str) and local == "auto"):
        return local or None
    if isinstance(local, bool | str):
        raise ValueError(f"local must be 'auto', False or a number of neighbours, got {shown(local)}")
    return as_count(local, "local", 2)


def may_be_local(plan: RegressionPlan) -> str | None:
    """Say what a local process cannot go with, if there is anything."""
    if not plan.is_gaussian:
        return f"posterior={type(plan.posterior).__name__}"
    if not plan.features.has_kernel:
        return "features that have no kernel, or one of scikit-learn"
    return None if plan.noise in ("auto", "constant") else f"noise={plan.noise!r}"


def require_formula(plan: RegressionPlan, problem: str) -> None:
    """Raise unless rows left out of a fit have closed forms."""
    if not plan.is_gaussian:
        raise ValueError(f"{problem} with posterior={type(plan.posterior).__name__}; use posterior='gaussian'")
    if plan.noise in NOISE_OF_ROWS:
        raise ValueError(f"{problem} with noise={plan.noise!r}; use another noise")


# --- parameters compared by content: equal content compares equal, and changes in place are noticed

SCALARS = (str, bytes, bool, int, float, complex, type(None))


@dataclass(frozen=True, eq=False)
class Itself:
    """An object that cannot be pickled, such as a lambda function: equal only to itself."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def content(value: Any, generator_states: bool = False) -> Hashable:
    """Return a hashable key that is equal for values with the same content.

    `value`: estimators are compared by class and parameters, other objects by how they are pickled.
    `generator_states`: whether random generators in different states differ (every draw changes the state), or all
    random generators count as equal.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, SCALARS):
        return "nan" if value != value else value
    if isinstance(value, list | tuple):
        return tuple(content(v, generator_states) for v in value)
    if isinstance(value, dict):
        return frozenset((content(k), content(v, generator_states)) for k, v in value.items())
    if hasattr(value, "get_params") and not isinstance(value, type):
        return content(type(value)), content(value.get_params(deep=False), generator_states)
    if not generator_states and (value is np.random or isinstance(value, np.random.RandomState | np.random.Generator)):
        return "random generator"
    try:
        return str(joblib.hash(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value))
    except Exception:  # the object's own methods may raise anything
        return Itself(value)
