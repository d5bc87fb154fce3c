"""Displays of fitted models: predictions, calibration, what was found in the inputs, convergence and posterior.

They follow scikit-learn: a display stores its data, `plot` draws it on the given axes or new ones and sets `ax_`
and `figure_`, and the `from_...` constructors compute and plot in one step, passing further keywords to `plot`.
Constructors raise ValueError for arrays whose shapes disagree or whose values are not finite or out of range; `plot`
raises ValueError for an unknown option and ImportError without matplotlib.
"""

from pydirect.plotting.fits import ELBODisplay, LogScoreDisplay, PosteriorDisplay
from pydirect.plotting.influence import RandomEffectsDisplay, RowInfluenceDisplay, ShapleyDisplay
from pydirect.plotting.inputs import EffectDisplay, MapDisplay, NoiseDisplay, RelevanceDisplay, SharesDisplay
from pydirect.plotting.predictions import (
    CalibrationDisplay,
    PredictionIntervalDisplay,
    ReliabilityDisplay,
    SurvivalDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "ELBODisplay",
    "EffectDisplay",
    "LogScoreDisplay",
    "MapDisplay",
    "NoiseDisplay",
    "PosteriorDisplay",
    "PredictionIntervalDisplay",
    "RandomEffectsDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "RowInfluenceDisplay",
    "ShapleyDisplay",
    "SharesDisplay",
    "SurvivalDisplay",
]
