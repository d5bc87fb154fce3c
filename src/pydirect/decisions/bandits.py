"""Contextual bandits: which arm to pull, or which candidate to show, and learning from the rewards."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, cholesky
from sklearn.base import BaseEstimator

from pydirect import __version__
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_number, short_repr
from pydirect.features.basis import Basis
from pydirect.features.inputs import LARGEST
from pydirect.linear.posterior import FactoredPosterior
from pydirect.persistence.container import read, sound_contents, write
from pydirect.persistence.schema import NOT_STORED, Arrays, As, AtLeast, Header, Positive, Shape, pack, unpack
from pydirect.statistics.gaussian import TargetStatistics

POLICIES = ("ucb", "thompson")
# Floats of products stored at a time while deciding.
BLOCK_FLOATS = 2**22
# Added to covariances of candidates, in units of the largest variance: those of equal candidates are singular.
JITTER = 1e-12


@dataclass(eq=False, repr=False)
class ContextualBandit(BaseEstimator):
    """Base of the bandits: features of rows, policies, files. Rows are contexts or candidates."""

    _: KW_ONLY
    features: Annotated[Any, As(str | Basis)] = "linear"
    policy: str = "ucb"
    exploration: Annotated[float, As(int | float)] = 1.0
    half_life: Annotated[float | None, As(int | float | None)] = None
    random_state: Any = field(default=0, metadata=NOT_STORED)

    _shown: ClassVar[Any] = slice(None)  # columns of predictions: models of rewards

    def _check_parameters(self) -> None:
        as_choice(self.policy, "policy", POLICIES)
        as_number(self.exploration, "exploration", at_least=0.0)
        if self.half_life is not None:
            as_number(self.half_life, "half_life", above=0.0)
        if isinstance(self.features, str):
            as_choice(self.features, "features", ("linear",))
        elif not hasattr(self.features, "transform"):
            raise TypeError(f"features must be 'linear' or have a method transform, got {self.features!r}")

    def _rows(self, x: ArrayLike, name: str) -> FloatArray:
        """Return checked rows, (n_rows, n_features_in); the first ones begin with the prior."""
        rows = _bounded(as_float_array(x, name, ("n_rows", getattr(self, "n_features_in_", "n_features_in"))), name)
        if not hasattr(self, "rewards_"):
            self._check_parameters()
            self._rng = as_generator(self.random_state)
            self.n_features_in_: int = rows.shape[1]
            self.rewards_ = self._prior()
        return rows

    def _prior(self) -> RewardPosteriors:
        """Return the prior of the weights of all models of rewards: one for each arm, or one."""
        n_models, phi = len(getattr(self, "arms", (None,))), self._phi(np.zeros((1, self.n_features_in_)))
        return RewardPosteriors.prior(n_models, phi.shape[1])

    def _phi(self, rows: FloatArray) -> FloatArray:
        """Return Φ, (n_rows, n_weights): the features, and a column of ones."""
        phi = rows if isinstance(self.features, str) else np.asarray(self.features.transform(rows), dtype=np.float64)
        return np.hstack([phi, np.ones((len(phi), 1))])

    def _learn(self, rows: FloatArray, arms: NDArray[np.intp], rewards: ArrayLike) -> Self:
        y = _bounded(as_float_array(np.atleast_1d(rewards), "rewards", (len(rows),)), "rewards")
        self.rewards_.learn(self._phi(rows), arms, y, self.half_life)
        return self

    def _best(self, scores: FloatArray) -> NDArray[np.intp]:
        """Return the column of the largest score in each row, one of them at random if there are several."""
        largest = scores == scores.max(axis=1, keepdims=True)
        return np.argmax(largest * (1.0 + self._rng.random(scores.shape)), axis=1)

    def _moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and deviations of the rewards that models expect at rows, (n_rows, n_models) each."""
        size = max(1, BLOCK_FLOATS // self.rewards_.means.size)
        blocks = (self._phi(rows[begin : begin + size]) for begin in range(0, len(rows), size))
        mean, variance = map(np.concatenate, zip(*map(self.rewards_.moments, blocks), strict=True))
        return mean, np.sqrt(variance)

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the expected reward of every arm in a context, or of every candidate.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Contexts, or candidates.
        return_std : bool, default=False
            Also return standard deviations of the expected rewards, without the noise of single ones.

        Returns
        -------
        mean : ndarray of shape (n_rows, n_arms), or (n_rows,) of candidates
            Expected rewards.
        std : ndarray of the same shape
            Their posterior standard deviations; with `return_std` only.
        """
        mean, std = self._moments(self._rows(X, "X"))
        return (mean[:, self._shown], std[:, self._shown]) if return_std else mean[:, self._shown]

    # --- files

    def save(self, path: str | Path) -> None:
        """Write the bandit to one file, without pickle; decisions go on as if it had not been interrupted.

        Parameters
        ----------
        path : str or Path
            Path of the file.

        Raises
        ------
        TypeError
            If features are a transformer other than a `pydirect.features.Basis`, or arms are neither numbers nor text.
        """
        if not hasattr(self, "rewards_"):
            raise ValueError("save needs a bandit that has decided or learned, got a new one")
        if not isinstance(self.features, str | Basis):
            raise TypeError(f"features must be 'linear' or a Basis to be saved without pickle, got {self.features!r}")
        if unnamed := [arm for arm in getattr(self, "arms", ()) if not isinstance(arm, str | int | float)]:
            raise TypeError(f"arms must be numbers or text to be saved, got {unnamed[0]!r}")
        arrays: Arrays = {}
        own, rewards = pack(self, "bandit", arrays)[0], pack(self.rewards_, "rewards", arrays)[0]
        header: Header = {"library": __version__, "bandit": own, "rewards": rewards}
        header |= {"n_features_in": self.n_features_in_, "rng": self._rng.bit_generator.state}
        write(path, f"pydirect.{type(self).__name__}", header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bandit that `save` has written.

        Parameters
        ----------
        path : str or Path
            Path of the file.

        Raises
        ------
        pydirect.persistence.container.FileFormatError
            With the reason, when the file is truncated, altered, of a later version or of another kind.
        """
        document = read(path, f"pydirect.{cls.__name__}")
        with sound_contents(path, "a bandit"):
            header, arrays = document.header, document.arrays
            bandit = unpack(cls, header["bandit"], arrays, "bandit")
            bandit._check_parameters()
            bandit.n_features_in_ = as_count(header["n_features_in"], "n_features_in")
            bandit.rewards_ = unpack(RewardPosteriors, header["rewards"], arrays, "rewards")
            if bandit.rewards_.means.shape != (expected := bandit._prior().means.shape):
                raise ValueError(f"rewards must be of {expected} arms and weights")
            bandit._rng = np.random.default_rng()
            bandit._rng.bit_generator.state = header["rng"]
        return bandit


def _bounded(values: FloatArray, name: str) -> FloatArray:
    """Return values whose squares can be summed, or raise."""
    if np.abs(values).max() > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST:g} in magnitude, got {np.abs(values).max():g}")
    return values


@dataclass(eq=False, repr=False)
class LinearBandit(ContextualBandit):
    """Contextual bandit whose arms have weights of their own: LinUCB, or Thompson sampling.

    The reward of an arm is linear in features of the context, with Gaussian noise. Noise and prior variances are
    learned, so that rewards may have any unit. Decisions and rewards come one by one or in batches, and rewards in any
    order and as late as they like.

    Parameters
    ----------
    arms : sequence of hashable
        Two or more.
    features : "linear" or transformer, default="linear"
        ``"linear"``: the context itself, whose columns should vary by similar amounts. Or anything fitted with a method
        ``transform``, such as ``features_`` of a `pydirect.DirectRegressor` that was fitted to earlier rewards. Either
        gets a column of ones.
    policy : {"ucb", "thompson"}, default="ucb"
        ``"ucb"``: the arm of the largest mean plus `exploration` standard deviations (Li et al. 2010, *A
        contextual-bandit approach to personalized news article recommendation*); of like contexts it chooses the same
        until it has learned. ``"thompson"``: the arm that is best under weights drawn from their posterior (Agrawal &
        Goyal 2013, *Thompson sampling for contextual bandits with linear payoffs*), which explores more, and tries
        several arms while rewards are late.
    exploration : float, default=1.0
        Factor of standard deviations; 0 is greedy. With more, first rewards that are bad by chance are less likely to
        make it give up an arm.
    half_life : float, optional
        A reward counts half when this many have followed, of whatever arms: for rewards whose means drift. See
        `pydirect.decisions.RewardPosteriors` for what is exact.
    random_state : int, Generator or None, default=0
        Seed of the draws.

    Attributes
    ----------
    rewards_ : RewardPosteriors
        Posteriors of the weights of all arms.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.decisions import LinearBandit
    >>> bandit = LinearBandit(["left", "right"])
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(100):
    ...     context = rng.normal(size=1)
    ...     arm = bandit.decide(context)
    ...     _ = bandit.learn(context, arm, context[0] if arm == "right" else -context[0])
    >>> bandit.decide([[-2.0], [2.0]])
    ['left', 'right']
    """

    arms: Annotated[Sequence[Hashable], As(list[str | int | float])]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if len({*self.arms}) < max(2, len(self.arms)):
            raise ValueError(f"arms must be two or more different ones, got {list(self.arms)!r}")

    def decide(self, X: ArrayLike) -> Any:
        """Choose an arm for every context.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in) or (n_features_in,)
            One context per row, or one context.

        Returns
        -------
        list of arms, or one arm for a single context
            The chosen arms.
        """
        mean, std = self._moments(self._rows(np.atleast_2d(X), "X"))
        deviations = 1.0 if self.policy == "ucb" else self._rng.standard_normal(mean.shape)
        chosen = [self.arms[number] for number in self._best(mean + self.exploration * deviations * std)]
        return chosen[0] if np.ndim(X) == 1 else chosen

    def learn(self, X: ArrayLike, arms: Any, rewards: ArrayLike) -> Self:
        """Learn the rewards of arms in their contexts, whenever and in whatever order they arrive.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in) or (n_features_in,)
            Contexts.
        arms : sequence of length n_rows, or one arm for a single context
            Arms that were chosen.
        rewards : array_like of shape (n_rows,), or a number for a single context
            Their rewards.

        Returns
        -------
        Self
            The bandit itself.
        """
        rows = self._rows(np.atleast_2d(X), "X")
        named, numbers = [arms] if np.ndim(X) == 1 else list(arms), {arm: k for k, arm in enumerate(self.arms)}
        if unknown := [arm for arm in named if arm not in numbers]:
            raise ValueError(f"arms must be among {list(self.arms)!r}, got {unknown[0]!r}")
        if len(named) != len(rows):
            raise ValueError(f"arms must be {len(rows)}, one per row of X, got {len(named)}")
        return self._learn(rows, np.array([numbers[arm] for arm in named], dtype=np.intp), rewards)

    def add_arm(self, arm: Hashable) -> Self:
        """Add an arm of which nothing is known yet.

        Parameters
        ----------
        arm : hashable
            Name of the arm.

        Returns
        -------
        Self
            The bandit itself.
        """
        if arm in self.arms:
            raise ValueError(f"arm must be a new one, got {arm!r}")
        self.arms = [*self.arms, arm]
        if hasattr(self, "rewards_"):
            self.rewards_.add_arm()
        return self


class SharedBandit(ContextualBandit):
    """Bandit over candidates that are described by columns, all of which share one vector of weights.

    For arms that change from round to round, or are many: what one tells is learned about all that are like it.

    Parameters
    ----------
    features : "linear" or transformer, default="linear"
        As of `LinearBandit`; of candidates in place of contexts. Of a context and properties of a candidate together,
        products of their columns make preferences linear (``PolynomialFeatures(interaction_only=True)``).
    policy : {"ucb", "thompson"}, default="ucb"
        As of `LinearBandit`.
    exploration : float, default=1.0
        As of `LinearBandit`.
    half_life : float, optional
        As of `LinearBandit`.
    random_state : int, Generator or None, default=0
        Seed of the draws.

    Attributes
    ----------
    rewards_ : RewardPosteriors
        Of one arm: the weights.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.decisions import SharedBandit
    >>> bandit = SharedBandit()
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(50):
    ...     candidates = rng.normal(size=(5, 2))
    ...     best = bandit.decide(candidates)
    ...     _ = bandit.learn(candidates[best], candidates[best] @ [1.0, -1.0])
    >>> bandit.decide([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    1
    """

    _shown: ClassVar[Any] = 0

    def decide(self, candidates: ArrayLike) -> Any:
        """Choose one of the candidates, in every round.

        Parameters
        ----------
        candidates : array_like of shape (n_candidates, n_features_in) or (n_rounds, n_candidates, n_features_in)
            Candidates of one round or of several.

        Returns
        -------
        int, or ndarray of shape (n_rounds,)
            Numbers of candidates.
        """
        x = np.asarray(candidates)
        if x.ndim not in (2, 3) or x.size == 0:
            raise ValueError(f"candidates must have shape ([n_rounds,] n_candidates, n_features_in), got {x.shape}")
        rows, shape = self._rows(x.reshape(-1, x.shape[-1]), "candidates"), (-1, x.shape[-2])
        if self.policy == "ucb":
            mean, std = self._moments(rows)
            scores = (mean + self.exploration * std).reshape(shape)
        else:
            with single_blas_thread():
                scores = self._drawn(self._phi(rows).reshape(*shape, self.rewards_.means.shape[1]))
        chosen = self._best(scores)
        return chosen if x.ndim == 3 else int(chosen[0])

    def _drawn(self, phi: FloatArray) -> FloatArray:
        """Draw rewards of candidates, (n_rounds, n_candidates), at their Φ, (n_rounds, n_candidates, n_weights)."""
        n_rounds, n_candidates, b = phi.shape
        [covariance], [mean] = self.rewards_.covariances, self.rewards_.means
        if n_rounds * n_candidates < b:  # of the smaller matrix a factor is found in less time
            joint = phi @ covariance @ phi.transpose(0, 2, 1)
            joint += JITTER * np.einsum("ijj->i", joint)[:, None, None] * np.eye(n_candidates)
            drawn = np.linalg.cholesky(joint) @ self._rng.standard_normal((n_rounds, n_candidates, 1))
        else:
            weights = self._rng.standard_normal((n_rounds, b)) @ cholesky(covariance)
            drawn = phi @ weights[:, :, None]
        spread = self.exploration * np.sqrt(self.rewards_.noise_variance)
        return np.asarray(phi @ mean + spread * drawn[:, :, 0])

    def learn(self, X: ArrayLike, rewards: ArrayLike) -> Self:
        """Learn the rewards of candidates that were chosen, whenever and in whatever order they arrive.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in) or (n_features_in,)
            Candidates that were chosen.
        rewards : array_like of shape (n_rows,), or a number for a single candidate
            Their rewards.

        Returns
        -------
        Self
            The bandit itself.
        """
        rows = self._rows(np.atleast_2d(X), "X")
        return self._learn(rows, np.zeros(len(rows), dtype=np.intp), rewards)


# Residuals below this fraction of the squares are rounding.
ROUNDING = 1e-14
# Number of weights of size σ that count as seen before the first reward: λ begins at 1.
PRIOR_COUNT = 1.0
# Steps of the fixed point of λ at a refresh; it is found again at the next one.
PRECISION_STEPS = 2
# Refreshes per half-life: between them rewards have their weights relative to each other only.
REFRESHES_PER_HALF_LIFE = 8


@dataclass(eq=False)
class RewardPosteriors:
    """Posteriors of the weights of all arms, changed in place. The last column of Φ is of ones.

    With forgetting, a reward that i others have followed counts 2^(−i / half-life): relative to the others always, and
    absolutely after a refresh; until then all of them together count for up to 9 % too much. `sums` are those of
    products of (φ, reward) with itself, `means` m, `covariances` S in units of the noise variance, `baseline` β,
    `prior_precision` λ, and `growth` the weight of the next reward, until a refresh divides by it.
    """

    sums: Annotated[FloatArray, Shape("n_arms", "n_sums", "n_sums")]
    means: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    covariances: Annotated[FloatArray, Shape("n_arms", "n_weights", "n_weights")]
    baseline: float = 0.0
    prior_precision: Annotated[float, Positive] = 1.0
    growth: Annotated[float, AtLeast(1.0)] = 1.0
    n_learned: Annotated[int, AtLeast(0)] = 0
    next_refresh: int = 1

    __repr__ = short_repr

    @classmethod
    def prior(cls, n_arms: int, n_weights: int) -> Self:
        """Return the prior: no rewards yet."""
        covariances = np.tile(np.eye(n_weights), (n_arms, 1, 1))
        return cls(np.zeros((n_arms, n_weights + 1, n_weights + 1)), np.zeros((n_arms, n_weights)), covariances)

    def add_arm(self) -> None:
        """Add an arm without rewards."""
        new = self.prior(1, self.means.shape[1])
        new.covariances /= self.prior_precision
        for name in ("sums", "means", "covariances"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(new, name)]))

    def check(self) -> None:
        """Raise unless sums are of the weights and a reward, and the next refresh is to come."""
        if self.next_refresh <= self.n_learned or self.sums.shape[1] != self.means.shape[1] + 1:
            raise ValueError("next_refresh must be above n_learned, and sums of one number more than means")

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.means)

    @property
    def noise_variance(self) -> float:
        """Variance σ² of the noise; 1 before there are rewards that differ."""
        n, total, squares = self.sums[:, [-2, -2, -1], [-2, -1, -1]].sum(axis=0)
        residual = squares - self.baseline * (2 * total - n * self.baseline) - np.sum(self.means * self._centred)
        return float(residual / n) if n and residual > ROUNDING * squares else 1.0

    @property
    def _centred(self) -> FloatArray:
        """Φᵀ(y − β), (n_arms, n_weights)."""
        return np.asarray(self.sums[:, :-1, -1] - self.baseline * self.sums[:, :-1, -2])

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the expected reward of every arm at rows of Φ, (n_rows, n_arms) each."""
        n_arms, b = self.means.shape
        with single_blas_thread():
            images = (self.covariances.reshape(-1, b) @ phi.T).reshape(n_arms, b, len(phi))
            variance = np.einsum("aji,ij->ia", images, phi)
            return self.baseline + phi @ self.means.T, self.noise_variance * np.maximum(variance, 0.0)

    def learn(self, phi: FloatArray, arms: NDArray[np.intp], rewards: FloatArray, half_life: float | None) -> None:
        """Add rewards of arms.

        - `half_life`: Rewards after which a weight halves; None if all count alike.
        """
        rows, begin = np.column_stack([phi, rewards]), 0
        with single_blas_thread():
            while begin < len(rows):
                chunk = slice(begin, begin + self.next_refresh - self.n_learned)
                self._add(rows[chunk], arms[chunk], half_life)
                begin += len(rows[chunk])
                if self.n_learned == self.next_refresh:
                    self._refresh(half_life)

    def _add(self, rows: FloatArray, arms: NDArray[np.intp], half_life: float | None) -> None:
        weight = np.full(len(rows), self.growth)
        if half_life is not None:
            weight *= 2.0 ** (np.arange(1, len(rows) + 1) / half_life)
            self.growth = float(weight[-1])
        self.n_learned += len(rows)
        for arm in np.unique(arms):
            own = arms == arm
            x, w = rows[own], weight[own]
            if len(x) > 1:
                self.sums[arm] += (x.T * w) @ x
                self._condition(arm)
                continue
            # As most come: the same in a fraction of the time.
            [row], covariance = x, self.covariances[arm]
            _add_square(self.sums[arm], np.sqrt(w[0]) * row, 1.0)
            phi, error = row[:-1], row[-1] - self.baseline - row[:-1] @ self.means[arm]
            image = covariance @ phi
            deviation = np.sqrt(1 / w[0] + phi @ image)
            self.means[arm] += image * (error / deviation**2)
            _add_square(covariance, image / deviation, -1.0)

    def _refresh(self, half_life: float | None) -> None:
        """Find the baseline and the prior's precision, and the posteriors from the sums."""
        self.sums /= self.growth
        self.growth = 1.0
        steps = self.n_learned if half_life is None else min(self.n_learned, half_life / REFRESHES_PER_HALF_LIFE)
        self.next_refresh = self.n_learned + max(1, int(steps))
        n, total = self.sums[:, -2, -2:].sum(axis=0)
        self.baseline = float(total / n)
        for step in range(PRECISION_STEPS + 1):
            if step:
                self.prior_precision = self._likeliest_precision()
            for arm in range(self.n_arms):
                self._condition(arm)

    def _condition(self, arm: int) -> None:
        """Find the posterior of an arm at its sums, the baseline and the prior's precision."""
        gram = np.ascontiguousarray(self.sums[arm, :-1, :-1])
        posterior = FactoredPosterior.of(
            TargetStatistics(gram, self._centred[arm], 0.0, 0.0), 1.0, 1 / self.prior_precision
        )
        self.means[arm], self.covariances[arm] = posterior.coefficients, posterior.covariance

    def _likeliest_precision(self) -> float:
        size = np.einsum("ij,ij->", self.means, self.means) / self.noise_variance
        traces = np.einsum("ijj->i", self.covariances)
        determined = (self.means.shape[1] - self.prior_precision * traces).sum()
        return float((determined + PRIOR_COUNT) / (size + PRIOR_COUNT))


def _add_square(matrix: FloatArray, vector: FloatArray, factor: float) -> None:
    """Add factor · vvᵀ to a C-ordered matrix, in place and without a matrix in between."""
    blas.dger(factor, vector, vector, a=matrix.T, overwrite_a=1)
