"""Contextual bandits: which arm to pull, or which candidate to show, and learning from the rewards."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, cholesky
from sklearn.base import BaseEstimator

from pydirect import __version__
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_number, short_repr
from pydirect.features.basis import Basis
from pydirect.features.inputs import LARGEST
from pydirect.linear.recursive import RecursivePosterior
from pydirect.persistence.container import read, sound_contents, write
from pydirect.persistence.schema import Arrays, AtLeast, Positive, Shape, pack, unpack
from pydirect.statistics.gaussian import TargetStatistics

POLICIES = ("ucb", "thompson")
# Floats of products stored at a time while deciding.
BLOCK_FLOATS = 2**22
# Added to covariances of candidates, in units of the largest variance: those of equal candidates are singular.
JITTER = 1e-12


class ContextualBandit(BaseEstimator):
    """Base of the bandits: features of rows, policies, files. Rows are contexts or candidates."""

    rewards_: RewardPosteriors
    n_features_in_: int
    _rng: np.random.Generator
    _saved: tuple[str, ...] = ("policy", "exploration", "half_life")

    def __init__(
        self,
        *,
        features: Any = "linear",
        policy: str = "ucb",
        exploration: float = 1.0,
        half_life: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.features = features
        self.policy = policy
        self.exploration = exploration
        self.half_life = half_life
        self.random_state = random_state

    def _first_arms(self) -> int:
        """Return the number of models of rewards to begin with."""
        raise NotImplementedError

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
            self.n_features_in_ = rows.shape[1]
            self.rewards_ = RewardPosteriors.prior(self._first_arms(), self._phi(rows[:1]).shape[1])
        return rows

    def _phi(self, rows: FloatArray) -> FloatArray:
        """Return Φ, (n_rows, n_weights): the features, and a column of ones."""
        phi = rows if isinstance(self.features, str) else np.asarray(self.features.transform(rows), dtype=np.float64)
        return np.hstack([phi, np.ones((len(phi), 1))])

    def _learn(self, rows: FloatArray, arms: NDArray[np.intp], rewards: ArrayLike) -> None:
        y = _bounded(as_float_array(np.atleast_1d(rewards), "rewards", (len(rows),)), "rewards")
        self.rewards_.learn(self._phi(rows), arms, y, self.half_life)

    def _best(self, scores: FloatArray) -> NDArray[np.intp]:
        """Return the column of the largest score in each row, one of them at random if there are several."""
        largest = scores == scores.max(axis=1, keepdims=True)
        return np.argmax(largest * (1.0 + self._rng.random(scores.shape)), axis=1)

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
        rows = self._rows(X, "X")
        moments = [self.rewards_.moments(self._phi(block)) for block in self._blocks(rows)]
        mean, variance = (self._by_row(np.concatenate(parts)) for parts in zip(*moments, strict=True))
        return (mean, np.sqrt(variance)) if return_std else mean

    def _by_row(self, values: FloatArray) -> FloatArray:
        """Return values of (n_rows, n_models) as they are predicted."""
        return values

    def _blocks(self, rows: FloatArray) -> list[FloatArray]:
        size = max(1, BLOCK_FLOATS // self.rewards_.means.size)
        return [rows[begin : begin + size] for begin in range(0, len(rows), size)]

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
        header = {
            "library": __version__,
            "features": self.features if isinstance(self.features, str) else pack(self.features, "features", arrays)[0],
            "n_features_in": self.n_features_in_,
            "rewards": pack(self.rewards_, "rewards", arrays)[0],
            "rng": self._rng.bit_generator.state,
            **{name: getattr(self, name) for name in self._saved},
        }
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
        header, arrays = document.header, document.arrays
        with sound_contents(path, "a bandit"):
            features = header["features"]
            if not isinstance(features, str):
                features = unpack(Basis, features, arrays, "features")
            bandit = cls(features=features, **{name: header[name] for name in cls._saved})
            bandit._check_parameters()
            bandit.n_features_in_ = as_count(header["n_features_in"], "n_features_in")
            n_weights = bandit._phi(np.zeros((1, bandit.n_features_in_))).shape[1]
            sizes = {"n_arms": bandit._first_arms(), "n_weights": n_weights}
            bandit.rewards_ = unpack(RewardPosteriors, header["rewards"], arrays, "rewards", **sizes)
            bandit._rng = np.random.default_rng()
            bandit._rng.bit_generator.state = header["rng"]
        return bandit


def _bounded(values: FloatArray, name: str) -> FloatArray:
    """Return values whose squares can be summed, or raise."""
    if np.abs(values).max() > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST:g} in magnitude, got {np.abs(values).max():g}")
    return values


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

    _saved = ("arms", *ContextualBandit._saved)

    def __init__(
        self,
        arms: Sequence[Hashable],
        *,
        features: Any = "linear",
        policy: str = "ucb",
        exploration: float = 1.0,
        half_life: float | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            features=features, policy=policy, exploration=exploration, half_life=half_life, random_state=random_state
        )
        self.arms = arms

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms must be two or more different ones, got {list(self.arms)!r}")
        self._numbers = {arm: number for number, arm in enumerate(self.arms)}

    def _first_arms(self) -> int:
        return len(self.arms)

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
        x = np.asarray(X)
        rows = self._rows(np.atleast_2d(x), "X")
        chosen = np.concatenate([self._best(self._scores(block)) for block in self._blocks(rows)])
        return self.arms[chosen[0]] if x.ndim == 1 else [self.arms[number] for number in chosen]

    def _scores(self, rows: FloatArray) -> FloatArray:
        mean, variance = self.rewards_.moments(self._phi(rows))
        deviations = 1.0 if self.policy == "ucb" else self._rng.standard_normal(mean.shape)
        return mean + self.exploration * deviations * np.sqrt(variance)

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
        single = np.ndim(X) == 1
        rows = self._rows(np.atleast_2d(X), "X")
        named = [arms] if single else list(arms)
        unknown = [arm for arm in named if arm not in self._numbers]
        if unknown:
            raise ValueError(f"arms must be among {list(self.arms)!r}, got {unknown[0]!r}")
        if len(named) != len(rows):
            raise ValueError(f"arms must be {len(rows)}, one per row of X, got {len(named)}")
        self._learn(rows, np.array([self._numbers[arm] for arm in named], dtype=np.intp), rewards)
        return self

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
            self._numbers[arm] = self.rewards_.n_arms
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

    def _first_arms(self) -> int:
        return 1

    def _by_row(self, values: FloatArray) -> FloatArray:
        return values[:, 0]

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
            raise ValueError(
                "candidates must have shape (n_candidates, n_features_in) or (n_rounds, n_candidates, n_features_in), "
                f"none of them 0, got {x.shape}"
            )
        rounds = x.shape if x.ndim == 3 else (1, *x.shape)
        phi = self._phi(self._rows(x.reshape(-1, x.shape[-1]), "candidates")).reshape(*rounds[:2], -1)
        with single_blas_thread():
            chosen = self._best(self._scores(phi))
        return chosen if x.ndim == 3 else int(chosen[0])

    def _scores(self, phi: FloatArray) -> FloatArray:
        """Return scores of candidates, (n_rounds, n_candidates), for their Φ, (n_rounds, n_candidates, n_weights)."""
        n_rounds, n_candidates, b = phi.shape
        if self.policy == "ucb":
            mean, variance = self.rewards_.moments(phi.reshape(-1, b))
            return (mean + self.exploration * np.sqrt(variance)).reshape(n_rounds, n_candidates)
        covariance = self.rewards_.covariances[0]
        if n_rounds * n_candidates < b:  # of the smaller matrix a factor is found in less time
            joint = phi @ covariance @ phi.transpose(0, 2, 1)
            joint += JITTER * np.einsum("ijj->i", joint)[:, None, None] * np.eye(n_candidates)
            drawn = np.linalg.cholesky(joint) @ self._rng.standard_normal((n_rounds, n_candidates, 1))
        else:
            weights = self._rng.standard_normal((n_rounds, b)) @ cholesky(covariance)
            drawn = phi @ weights[:, :, None]
        spread = self.exploration * np.sqrt(self.rewards_.noise_variance)
        return phi @ self.rewards_.means[0] + spread * drawn[:, :, 0]

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
        self._learn(rows, np.zeros(len(rows), dtype=np.intp), rewards)
        return self


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
    """Posteriors of the weights of all arms, changed in place.

    With forgetting, a reward that i others have followed counts 2^(−i / half-life): relative to the others always, and
    absolutely after a refresh; until then all of them together count for up to 9 % too much. `gram` is A, `cross` c,
    `sums` Φᵀ1, `totals` (n_arms, 3) numbers of rewards, their sums and sums of squares, `means` m, `covariances` S,
    `baseline` β, `prior_precision` λ, and `growth` the weight of the next reward, until a refresh divides by it.
    """

    gram: Annotated[FloatArray, Shape("n_arms", "n_weights", "n_weights")]
    cross: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    sums: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    totals: Annotated[FloatArray, Shape("n_arms", 3)]
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
        square, flat = (n_arms, n_weights, n_weights), (n_arms, n_weights)
        covariances = np.broadcast_to(np.eye(n_weights), square).copy()
        return cls(np.zeros(square), np.zeros(flat), np.zeros(flat), np.zeros((n_arms, 3)), np.zeros(flat), covariances)

    def add_arm(self) -> None:
        """Add an arm without rewards."""
        new = self.prior(1, self.means.shape[1])
        new.covariances /= self.prior_precision
        for name in ("gram", "cross", "sums", "totals", "means", "covariances"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(new, name)]))

    def check(self) -> None:
        """Raise unless the next refresh is to come."""
        if self.next_refresh <= self.n_learned:
            raise ValueError("next_refresh must be above n_learned")

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.means)

    @property
    def noise_variance(self) -> float:
        """Variance σ² of the noise; 1 before there are rewards that differ."""
        n, total, squares = self.totals.sum(axis=0)
        residual = squares - self.baseline * (2 * total - n * self.baseline)
        residual -= np.einsum("ij,ij->", self.means, self.cross - self.baseline * self.sums)
        return float(residual / n) if n and residual > ROUNDING * squares else 1.0

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
        begin = 0
        while begin < len(phi):
            end = min(len(phi), begin + self.next_refresh - self.n_learned)
            chunk = slice(begin, end)
            with single_blas_thread():
                self._add(phi[chunk], arms[chunk], rewards[chunk], half_life)
                if self.n_learned == self.next_refresh:
                    self._refresh(half_life)
            begin = end

    def _add(self, phi: FloatArray, arms: NDArray[np.intp], rewards: FloatArray, half_life: float | None) -> None:
        weight = np.full(len(phi), self.growth)
        if half_life is not None:
            weight *= 2.0 ** (np.arange(1, len(phi) + 1) / half_life)
            self.growth = float(weight[-1])
        for arm in np.unique(arms) if len(arms) > 1 else arms:
            own = arms == arm
            x, y, w = phi[own], rewards[own], weight[own]
            weighted = x * w[:, None]
            self.cross[arm] += y @ weighted
            self.sums[arm] += weighted.sum(axis=0)
            self.totals[arm] += w.sum(), w @ y, w @ y**2
            if len(x) == 1:  # as most come: the same in a fraction of the time
                _add_square(self.gram[arm], np.sqrt(w[0]) * x[0], 1.0)
                self._follow(arm, x[0], y[0] - self.baseline, w[0])
            else:
                self.gram[arm] += weighted.T @ x
                posterior = RecursivePosterior(self.means[arm], self.covariances[arm], 1.0, 1 / self.prior_precision)
                self.covariances[arm] = posterior.update(x, y - self.baseline, w).covariance
        self.n_learned += len(phi)

    def _follow(self, arm: int, phi: FloatArray, y: float, weight: float) -> None:
        """Update the posterior of an arm by one reward."""
        image = self.covariances[arm] @ phi
        deviation = np.sqrt(1 / weight + phi @ image)
        direction = image / deviation
        self.means[arm] += direction * ((y - phi @ self.means[arm]) / deviation)
        _add_square(self.covariances[arm], direction, -1.0)

    def _refresh(self, half_life: float | None) -> None:
        """Find the baseline and the prior's precision, and the posteriors from the sums."""
        for values in (self.gram, self.cross, self.sums, self.totals):
            values /= self.growth
        self.growth = 1.0
        steps = self.n_learned if half_life is None else min(self.n_learned, half_life / REFRESHES_PER_HALF_LIFE)
        self.next_refresh = self.n_learned + max(1, int(steps))
        n, total, _ = self.totals.sum(axis=0)
        self.baseline = float(total / n)
        for _ in range(PRECISION_STEPS):
            self._condition()
            self.prior_precision = self._likeliest_precision()
        self._condition()

    def _condition(self) -> None:
        """Find the posteriors at the sums, the baseline and the prior's precision."""
        for arm, (n, *_) in enumerate(self.totals):
            centred = self.cross[arm] - self.baseline * self.sums[arm]
            statistics = TargetStatistics(self.gram[arm], centred, 0.0, n)
            posterior = RecursivePosterior.of(statistics, 1.0, 1 / self.prior_precision)
            self.means[arm], self.covariances[arm] = posterior.mean, posterior.covariance

    def _likeliest_precision(self) -> float:
        size = np.einsum("ij,ij->", self.means, self.means) / self.noise_variance
        traces = np.einsum("ijj->i", self.covariances)
        determined = (self.means.shape[1] - self.prior_precision * traces).sum()
        return float((determined + PRIOR_COUNT) / (size + PRIOR_COUNT))


def _add_square(matrix: FloatArray, vector: FloatArray, factor: float) -> None:
    """Add factor · vvᵀ to a C-ordered matrix, in place and without a matrix in between."""
    blas.dger(factor, vector, vector, a=matrix.T, overwrite_a=1)
