"""The problem that a regressor of counts solves: rows with counts, in the directions about which they say anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from pydirect.estimators._label_problem import LabelProblem
from pydirect.logistic.count_fit import ascend_counts
from pydirect.logistic.count_rows import CountRows

# Nats per row by which a negative binomial must predict left-out counts better than Poisson.
WORTH_DISPERSION = 1e-3


@dataclass(frozen=True)
class CountProblem(LabelProblem):
    """Rows with counts; see `LabelProblem`. The dispersion that was found is that of `rotated`."""

    @property
    def dispersion(self) -> float:
        """Dispersion of the counts; 0 for Poisson."""
        return self._counts.counts.dispersion

    @property
    def _counts(self) -> CountRows:
        assert isinstance(self.rotated, CountRows)
        return self.rotated

    def at_rest(self, max_iter: int, near: Self | None = None) -> Self:
        """Return the problem with continuous weights and the dispersion fitted, from those of other features on."""
        rows, start = self._counts, None
        if near is not None:
            rows, start = rows.with_dispersion(near.dispersion), near.ascent
        rows, ascent = ascend_counts(rows, self.variance_prior, max_iter=max_iter, stop=self.stop, near=start)
        [left_out] = rows.left_out_log_probabilities(ascent.best.solution.latent)
        return replace(self, rotated=rows, ascent=ascent, left_out=left_out)

    def likelier_family(self, max_iter: int) -> Self:
        """Return this fit of a negative binomial or, unless left-out counts speak against it, one of Poisson."""
        poisson = replace(self, rotated=self._counts.with_dispersion(0.0)).at_rest(max_iter)
        return poisson if poisson.log_loss <= self.log_loss + WORTH_DISPERSION else self
