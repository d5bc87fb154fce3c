"""Compiled kernels of pydirect. Arguments are trusted: the Python layer has validated them.

Arrays must be C-contiguous and of the dtype named here; nothing is converted.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

_Double: TypeAlias = NDArray[np.float64]
_Single: TypeAlias = NDArray[np.float32]
_Real = TypeVar("_Real", np.float64, np.float32)

class _BuildConfig(TypedDict):
    version: str
    compiler: str
    user_flags: str
    eigen: str
    openmp: bool
    threads: int
    isa: str
    isa_levels: list[str]

# Runtime

def build_config() -> _BuildConfig: ...
def isa_levels() -> list[str]: ...
def select_isa_level(arg0: str, /) -> None: ...
def default_threads() -> int: ...
def exp(x: _Double) -> _Double: ...
def log(x: _Double) -> _Double: ...  # positive normal numbers
def sincos_turns(t: NDArray[_Real]) -> tuple[NDArray[_Real], NDArray[_Real]]: ...

# Dense algebra; matrices of any strides, those that are written with one of an entry

def add_product(
    a: NDArray[_Real],
    b: NDArray[_Real],
    weight: NDArray[_Real] | None,
    out: NDArray[_Real],
    upper: bool,
    sign: float,
    n_threads: int,
) -> None: ...  # out += sign a diag(weight) b, on and above the diagonal if `upper`
def factorise(a: NDArray[_Real], n_threads: int) -> int: ...  # the number of good pivots; C-ordered, upper triangle
def solve_lower(lower: NDArray[_Real], x: NDArray[_Real], n_threads: int) -> None: ...

# Activations: 'relu' or 'heaviside'. Moments of units are (size,), covariances (n, d, d) for means (n, d).

def activation_moments(
    activation: str, mean: _Double, variance: _Double, hm: _Double, second: _Double, hv: _Double, n_threads: int
) -> None: ...
def activation_moments_adjoint(
    activation: str,
    mean: _Double,
    variance: _Double,
    hm_bar: _Double,
    second_bar: _Double,
    hv_bar: _Double,
    mean_bar: _Double,
    variance_bar: _Double,
    n_threads: int,
) -> None: ...
def activation_covariance(
    activation: str, kernel: str, mean: _Double, S: _Double, C: _Double, n_threads: int
) -> None: ...
def activation_covariance_adjoint(
    activation: str,
    kernel: str,
    mean: _Double,
    S: _Double,
    C_bar: _Double,
    mean_bar: _Double,
    S_bar: _Double,
    n_threads: int,
) -> None: ...

# Features

def fourier_features(
    x: _Double,
    frequencies: NDArray[_Real],
    amplitudes: NDArray[_Real],
    n_frequencies: int,
    out: NDArray[_Real],
    n_threads: int,
) -> None: ...

# Statistics

def add_upper_triangle(block: _Double | _Single, total: _Double, n_threads: int) -> None: ...
def merge_upper_triangle(
    block: _Double | _Single, factor: float, shift: _Double, total: _Double, n_threads: int
) -> None: ...
def mirror_upper_triangle(matrix: _Double, n_threads: int) -> None: ...
def add_transposed_product(rows: _Double | _Single, y: _Double, out: _Double) -> None: ...
def row_moments(
    rows: _Double, weight: _Double, spread: _Double, mean: _Double, variance: _Double, n_threads: int
) -> None: ...

# Networks of Gaussian weights. widths: inputs, hidden layers, outputs; priors: (kind, variance, alpha, beta) for the
# matrix and the biases of every layer.

class GaussianNetwork:
    def __init__(
        self,
        widths: list[int],
        n_targets: int,
        likelihood: str,
        activation: str,
        full_covariance: bool,
        kernel: str,
        skip: bool,
        priors: list[tuple[str, float, float, float]],
    ) -> None: ...
    def objective(
        self,
        parameters: _Double,
        x: _Double,
        y: _Double,
        weight: _Double | None,
        total_weight: float,
        divergence_factor: float,
        n_threads: int,
    ) -> tuple[float, _Double]: ...
    def sampled_objective(
        self,
        parameters: _Double,
        x: _Double,
        y: _Double,
        weight: _Double | None,
        total_weight: float,
        divergence_factor: float,
        kind: str,
        n_draws: int,
        seed: int,
        n_threads: int,
        law: str = "normal",
        exact_last_layer: bool = False,
    ) -> tuple[float, _Double]: ...
    def standardised_draws(self, law: str, seed: int, n_draws: int) -> _Double: ...
    def moments(
        self, parameters: _Double, x: _Double, layer: int, covariance: bool, n_threads: int
    ) -> tuple[_Double, _Double]: ...
    def divergence(self, parameters: _Double) -> tuple[float, _Double]: ...
    def prior_variances(self, parameters: _Double) -> _Double: ...
    @property
    def n_parameters(self) -> int: ...

def counter_normals(seed: int, stream: int, first: int, n: int) -> _Double: ...

# Gaussian process. In MarginalLikelihood, n rows: x (n, n_inputs), y (n, n_targets), weight (n,); distances of rows
# and products of their linear inputs (n, stride), of which stride >= n is a multiple of LEVEL_PADDING; tied
# (n_inputs,): the length-scale of each; mean and sd, (n_parameters,), of the prior; axes (n_axes, stride). θ and values
# are those of features.MarginalLikelihood, less slope · log noise + rest; BAD_POINT where there is none. In
# cross_covariance, out (n_rows, n_others), x (n_rows, n_inputs), others in panels, (⌈n_others/8⌉, n_inputs + n_linear,
# 8): all inputs, then those of the linear part; weights (n_inputs,), product_weights (n_inputs,) or none.

BAD_POINT: float

class MarginalLikelihood:
    def __init__(
        self,
        x: _Double,
        y: _Double,
        weight: _Double,
        distances: _Double,
        linear: _Double,
        tied: NDArray[np.int64],
        n_linear: int,
        mean: _Double,
        sd: _Double,
        axes: _Double,
        of_pairs: bool,
        twice_smoothness: int,
        slope: float,
        rest: float,
        n_threads: int,
    ) -> None: ...
    def __call__(self, theta: _Double) -> tuple[float, _Double]: ...
    def penalty(self, theta: _Double) -> tuple[float, _Double]: ...

def cross_covariance(
    x: _Double,
    others: _Double,
    weights: _Double,
    isotropic_weight: float,
    product_weights: _Double,
    amplitudes: _Double,
    linear_reach: float,
    twice_smoothness: int,
    out: _Double,
    n_threads: int,
    of_pairs: bool = ...,
) -> None: ...

# Rows given their nearest preceding ones. For nearest_preceding, x is (n_inputs, padded n_rows), targets (n_targets,);
# elsewhere x is (n_rows, n_inputs) and rows (n_targets, n_neighbours + 1), last the targets, −1 for none. moving, of
# moving_inputs, (n_rows, n_words): bits of many inputs in which rows differ from the first. isotropic, of
# nearest_distances, (⌈n_targets/8⌉, n_pairs, 8); noise (n_rows,), residual (n_rows, n_outputs), kernel (a_A, a_I, ℓ_I).
# nearest_evidence returns (n_inputs + 5,) the value and its derivatives, and whether all factors exist; weights
# (n_targets, n_neighbours + 1) and variances (n_targets,) are written.

def nearest_preceding(
    x: _Single, targets: NDArray[np.int64], n_neighbours: int, n_threads: int
) -> NDArray[np.int64]: ...
def moving_inputs(x: _Double) -> NDArray[np.uint64]: ...
def nearest_distances(x: _Double, rows: NDArray[np.int64], moving: NDArray[np.uint64], n_threads: int) -> _Double: ...
def nearest_evidence(
    x: _Double,
    rows: NDArray[np.int64],
    moving: NDArray[np.uint64],
    isotropic: _Double,
    noise: _Double,
    residual: _Double,
    kernel: _Double,
    twice_smoothness: int,
    with_gradient: bool,
    n_threads: int,
    weights: _Double | None = None,
    variances: _Double | None = None,
) -> tuple[_Double, bool]: ...

# Standardised columns and their normal scores. x (n_rows, n_columns), kept (n_kept,), scored (n_scored,), mean, scale
# (n_columns,), knots and scores (n_scored, n_knots), out (n_rows, n_kept + n_scored).

def map_inputs(
    x: _Double,
    kept: NDArray[np.int64],
    mean: _Double,
    scale: _Double,
    largest: float,
    scored: NDArray[np.int64],
    knots: _Double,
    scores: _Double,
    out: _Double,
) -> None: ...

# Minimisation

class Descent:  # L-BFGS between bounds, all arrays (n,) but steps, (n_steps, 2, n), of parameters and of gradients
    def __init__(self, x: _Double, lower: _Double, upper: _Double, scale: _Double, steps: _Double) -> None: ...
    def iterate(
        self, function: Callable[[_Double], tuple[float, _Double]] | MarginalLikelihood, unit: float
    ) -> bool: ...
    def forget_value(self) -> None: ...
    @property
    def x(self) -> _Double: ...
    @property
    def value(self) -> float: ...
    @property
    def n_evaluations(self) -> int: ...
    @property
    def scale(self) -> _Double: ...
    @property
    def steps(self) -> _Double: ...

# Effects of pairs of columns. classes (n_columns, n_rows), y (n_outputs, n_rows), between (n_outputs, n_columns,
# n_columns), cells (n_columns, n_columns).

def pair_screen(
    classes: NDArray[np.uint8], y: _Double, n_classes: int, between: _Double, cells: NDArray[np.int32], n_threads: int
) -> None: ...

# Expectations over Gaussian logits. Of softmax: mean and probability are (n, n_classes), all others (n,), the variance
# that of every logit of the row. Of a sigmoid all are (n,).

def expected_softmax(
    mean: _Double, variance: _Double, log_partition: _Double, probability: _Double, curvature: _Double, n_threads: int
) -> None: ...
def expected_sigmoid(
    mean: _Double, variance: _Double, log_partition: _Double, probability: _Double, curvature: _Double, n_threads: int
) -> None: ...

# Mean field

LEVEL_PADDING: Final[int]

_Progress: TypeAlias = tuple[int, bool, _Double]  # iterations, converged, ELBO after each

# M[o][:, o] = RᵀR for M = diag(scale)(matrix_scale matrix + diag(ridge))diag(scale), of its upper triangle: R, o, and
# the number of pivots before the first that is not positive and finite; R is undefined from there.
def cholesky(
    matrix: _Double, ridge: _Double, scale: _Double, pivot: bool, matrix_scale: float, n_threads: int
) -> tuple[_Double, NDArray[np.int64], int]: ...
def largest_pivots(matrix: _Double, n_order: int, least: float, n_threads: int) -> NDArray[np.int64]: ...
def inverse_diagonal(factor: _Double, n_threads: int) -> _Double: ...

# Of neighbourhoods of k points and the row itself: what stands above the diagonal, row by row, (n_rows, k (k + 1)/2).
def neighbour_distances(rows: _Single, points: _Single, chosen: NDArray[np.int64], n_threads: int) -> _Double: ...
def neighbour_factors(
    distances: _Double, weight: _Single, rho: float, eta: float, n_threads: int
) -> _Double: ...  # with the diagonals of all but the row, (n_rows, k (k + 3)/2)
def krige(factors: _Double, residuals: _Single, n_threads: int) -> _Double: ...  # mean, left, scatter; (3, n_rows)

# False where rows to be removed cannot have been added; directions and mean are then undefined.
class RowStream:
    def __init__(
        self,
        columns: list[_Double],
        which: list[NDArray[np.int64]],
        kernel: list[_Double],
        covariance: _Double,
        posterior: list[_Double],
        sums: list[_Double],
        rows: list[_Double],
        range: list[_Double],
        numbers: dict[str, float],
    ) -> None: ...
    def predict(self, x: _Double) -> tuple[float, float, float] | None: ...
    def learn(
        self, x: _Double, y: float, weight: float, decay: float, clock: float
    ) -> tuple[float, float, float] | None: ...
    n_rows: Final[int]
    ratio: Final[float]
    faded: Final[float]
    n_samples: Final[float]
    posterior_samples: Final[float]
    sum_scale: Final[float]
    n_outside: Final[float]
    squares: Final[float]
    calibration_sum: Final[float]
    calibration_weight: Final[float]
    score_sum: Final[float]
    score_weight: Final[float]

def recursive_update(
    phi: _Double,
    y: _Double,
    weight: _Double,
    noise_variance: float,
    n_earlier: int,
    directions: _Double,
    signs: _Double,
    mean: _Double,
    f_mean: _Double,
    f_variance: _Double,
) -> bool: ...

class MeanField:
    def __init__(
        self,
        a: _Single,
        a_exact: _Double | None,
        diagonal: _Double,
        c: _Double,
        yty: float,
        n_samples: float,
        levels: _Double,
        log_prior: _Double,
        prior_precision: _Double,
        noise_levels: _Double,
        noise_log_prior: _Double,
        n_threads: int,
    ) -> None: ...
    def start_from_lattice(self, factor: _Single, order: NDArray[np.int64], ridge: _Double) -> None: ...
    def start_from_naturals(self, eta: _Double, kappa: _Double) -> None: ...
    def set_noise(self, q_noise: _Double) -> None: ...
    def coordinate_ascent(self, max_sweeps: int, threshold: float, relative_rise: float, exact: bool) -> _Progress: ...
    def newton(
        self, max_iterations: int, tolerance: float, max_cg: int, cg_tolerance: float, relative_rise: float, exact: bool
    ) -> _Progress: ...
    def elbo(self) -> float: ...
    def elbo_and_gradient(
        self, n_levels: int, logits: _Double, noise_logits: _Double
    ) -> tuple[float, _Double, _Double]: ...
    def probabilities(self) -> _Double: ...
    @property
    def a(self) -> _Single: ...
    @property
    def tau(self) -> float: ...
    @property
    def eta(self) -> _Double: ...
    @property
    def kappa(self) -> _Double: ...
    @property
    def mean(self) -> _Double: ...
    @property
    def second_moment(self) -> _Double: ...
    @property
    def q_noise(self) -> _Double: ...

# Weights drawn one after another. factor (b, b) upper, mean (b,), levels and tilt (b or 1, n_levels), all in the order
# of the factor: position j is weight order[j]. Kinds 'independent', 'stratified' and 'nearest', one draw of the most
# probable levels. Codes (n_draws, b) in the weights' own order; Σ log S_j and log q (n_draws,).

def sequential_draws(
    factor: NDArray[_Real],
    mean: _Double,
    levels: _Double,
    tilt: _Double,
    order: NDArray[np.int64],
    n_draws: int,
    seed: int,
    kind: str,
    n_threads: int,
) -> tuple[NDArray[np.uint8], _Double, _Double]: ...

# What they come from, (n, n_draws) in (0, 1): a draw depends on seed, weight and its number alone.
def sequential_uniforms(weights: NDArray[np.int64], n_draws: int, seed: int, kind: str, n_threads: int) -> _Double: ...

# Kronecker sums, as tuples: sizes, start, position, index, coefficients, exponent, offset, values. Results come
# without the sizes, which are those of the arguments.

_KroneckerArrays: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int32],
    _Double,
    NDArray[np.int64],
    NDArray[np.int64],
    _Double,
]
_KroneckerResult: TypeAlias = tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], _Double, NDArray[np.int64], NDArray[np.int64], _Double
]

# ValueError for what would be read out of bounds.
def kron_check(sum: _KroneckerArrays) -> None: ...

# Hashes are masked to make them collide.
def kron_compact(sum: _KroneckerArrays, hash_mask: int = ...) -> _KroneckerResult: ...
def kron_multiply(a: _KroneckerArrays, b: _KroneckerArrays, n_threads: int) -> _KroneckerResult: ...
def kron_square(sum: _KroneckerArrays, n_threads: int) -> _KroneckerResult: ...

# Mantissas and exponents; max_dots bounds the inner products of factors held at a time.
def kron_inner(
    a: _KroneckerArrays, b: _KroneckerArrays, n_threads: int, max_dots: int = ...
) -> tuple[_Double, NDArray[np.int64]]: ...
def kron_entries(
    sum: _KroneckerArrays, points: NDArray[np.int64], n_threads: int
) -> tuple[_Double, NDArray[np.int64]]: ...

# Moments of quadratic networks. Rows of logits, q and levels are padded to a multiple of LEVEL_PADDING; a level whose
# log_prior is −inf has no probability, whatever its logit. Tables are flat: layer after layer, (n_moments, fan_out,
# fan_in) each.

class NetworkMoments:
    def __init__(
        self, n_inputs: int, hidden: list[int], bias: bool, levels: _Double, log_prior: _Double, n_threads: int
    ) -> None: ...
    def from_logits(self, logits: _Double) -> _Double: ...
    def from_probabilities(self, q: _Double) -> _Double: ...
    # Of the last table: ∂R/∂q, zero at the mean of every weight, from ∂R/∂table.
    def probability_slopes(self, gradient: _Double) -> _Double: ...
    # Of the last from_logits: the gradient of factor·R + KL(q ‖ p) in the logits.
    def logit_gradient(self, gradient: _Double, factor: float) -> _Double: ...
    # q and KL(q ‖ p) of every weight, of the last from_logits.
    @property
    def q(self) -> _Double: ...
    @property
    def divergence(self) -> _Double: ...

# Networks with quadratic activations. Moments of the weights stand in one table, see quadratic/moment_table.hpp; x is
# (n, n_inputs), y and weight (n,). Engines keep the arrays; calls on one engine wait for each other.

class NetworkEngine:
    def __init__(
        self, kind: str, n_inputs: int, hidden: list[int], bias: bool, x: _Double, y: _Double, weight: _Double | None
    ) -> None: ...
    def evaluate(self, table: _Double, gradient_out: _Double | None, n_threads: int) -> float: ...
    def predict(
        self, table: _Double, x: _Double, mean_out: _Double, variance_out: _Double | None, n_threads: int
    ) -> None: ...
    # One pass of coordinate ascent over q (n_weights, padded levels), in place; returns R. One hidden layer.
    def sweep(self, levels: _Double, log_prior: _Double, tau: float, q: _Double) -> float: ...
    # Monomials of f² that "monomial" holds; zero for the others.
    @property
    def n_terms(self) -> int: ...

# Floating-point operations of a value with its gradient, and bytes held.
def network_cost(kind: str, n_inputs: int, hidden: list[int], bias: bool, n_rows: int) -> tuple[float, float]: ...
def network_table_size(n_inputs: int, hidden: list[int], bias: bool) -> int: ...

# Mixtures. b weights, m levels (padded), r components; log_prior is (r or 1, b or 1, m).

MOST_COMPONENTS: Final[int]

class Mixture:
    def __init__(
        self,
        a: _Single,
        a_exact: _Double,
        diagonal: _Double,
        c: _Double,
        yty: float,
        n_samples: float,
        levels: _Double,
        log_prior: _Double,
        prior_precision: _Double,
        noise_levels: _Double,
        noise_log_prior: _Double,
        n_components: int,
        n_threads: int,
    ) -> None: ...
    def set_component(self, i: int, q: _Double) -> None: ...
    def set_alpha(self, alpha: _Double) -> None: ...
    def set_noise(self, q_noise: _Double) -> None: ...
    def set_offsets(self, offsets: _Double) -> None: ...
    def ascend(self, max_sweeps: int, threshold: float, relative_rise: float, refresh_every: int) -> _Progress: ...
    def elbo(self) -> float: ...
    def probabilities(self) -> _Double: ...
    @property
    def alpha(self) -> _Double: ...
    @property
    def q_noise(self) -> _Double: ...
    @property
    def mean(self) -> _Double: ...

def component_log_masses(indices: NDArray[np.uint8], table: _Double, n_threads: int) -> _Double: ...
def sum_by_level(indices: NDArray[np.uint8], coefficients: _Double, out: _Double, n_threads: int) -> None: ...

# Quantised models; see pydirect.quantized.program. codes are (n_basis_functions, n_columns), gain
# (n_basis_functions,), frequencies (n_frequencies, n_inputs) with their shifts.

class IntegerProgram:
    def __init__(
        self,
        n_columns_in: int,
        columns: NDArray[np.int32],
        origin: _Single,
        multiplier: _Single,
        limit: int,
        frequencies: NDArray[np.uint32],
        linear: NDArray[np.int32],
        gain: NDArray[np.int32],
        codes: NDArray[np.uint8],
        multipliers: NDArray[np.int32],
        total_shift: int,
    ) -> None: ...
    # x (n_rows, n_columns_in), totals (n_rows, n_columns).
    def run(self, x: _Double, totals: NDArray[np.int32], n_threads: int) -> None: ...

# Splits of every level, and the leaves' means at all rows, (n_rows, n_outputs). cells (n_rows, n_inputs) are below
# n_cells; split i · n_cells + c asks whether input i's is above c. given: a split per level to be replaced, or none.
def improved_tree(
    cells: NDArray[np.uint8],
    is_seen: NDArray[np.bool_],
    weight: _Double,
    target: _Double,
    given: list[int],
    depth: int,
    n_cells: int,
    ridge: float,
) -> tuple[list[int], _Double]: ...
def selected_columns(
    a: _Double, c: _Double, ridge: float, n_pairs: int, costs: tuple[float, float], least: float, most: int
) -> list[int]: ...

# Divergences by Monte Carlo: layouts 'independent', 'shared', 'radial'. Shared draws are those of one weight.

class BaseDraws:
    def __init__(
        self, layout: str, law: str, shape: float, seed: int, epoch: int, first_draw: int, n_draws: int, n_weights: int
    ) -> None: ...
    def draws(self, n_threads: int) -> _Double: ...
    def mean_powers(self, exponents: list[float], n_logs: int, n_threads: int) -> _Double: ...
    def mean_powers_of_normals(self, n_threads: int) -> _Double: ...

class LogDensity:
    def __init__(
        self,
        kind: str,
        centre: float,
        scale: float,
        log_scale: float,
        pieces: list[list[float]],
        knots: list[float],
        exponents: list[float],
        factors: list[float],
        n_logs: int,
        log_factor: float,
        log_square_factor: float,
        log_centre: float,
    ) -> None: ...
    # Slopes are written; there is no location where weights are θ ξ.
    def divergence_from_sums(
        self,
        location: _Double | None,
        scale: _Double,
        sums: _Double,
        location_slope: _Double | None,
        scale_slope: _Double,
        n_threads: int,
    ) -> float: ...
    def divergence_from_draws(
        self,
        draws: BaseDraws,
        exponential: bool,
        location: _Double | None,
        scale: _Double,
        location_slope: _Double | None,
        scale_slope: _Double,
        n_threads: int,
    ) -> float: ...

class SortedDraws:
    def __init__(self, draws: BaseDraws, degree: int, n_threads: int) -> None: ...
    def divergence(
        self,
        density: LogDensity,
        location: _Double | None,
        scale: _Double,
        location_slope: _Double | None,
        scale_slope: _Double,
        n_threads: int,
    ) -> float: ...
