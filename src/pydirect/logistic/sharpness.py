"""How certain several classes are: a factor of the precision that they share, by labels that are left out.

The covariance that classes share has the mean precision of all contrasts of their logits. In most rows one or two
classes are in question, and the contrasts that matter have up to (K − 1)/2 times that precision: probabilities are too
cautious. The factor s of A in (sA + I/τ)⁻¹ for which left-out labels are likeliest mends that where there are rows, and
leaves the prior where there are none.
"""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Ascent
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.rows import LabelledRows

FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def sharpest(rows: LabelledRows, ascent: Ascent[FullGaussian]) -> tuple[float, FloatArray]:
    """Return the factor for which left-out labels are likeliest, and their log probabilities with it, (n_samples,)."""
    solution = ascent.best.solution
    variances = rows.sharpened_variances(solution.state, FACTORS)
    relative = variances / np.maximum(variances[:, :1], np.finfo(float).tiny)
    found = list(rows.left_out_log_probabilities(solution.latent, relative))
    best = int(np.argmax([rows.weight @ log_probability for log_probability in found]))
    return FACTORS[best], found[best]
