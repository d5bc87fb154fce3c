"""Displays of fitted models: predictions, calibration, and what was found in the inputs.

They follow scikit-learn: a display stores its data, `plot` draws it on the given axes or new ones and sets `ax_`
and `figure_`, and the `from_...` constructors compute and plot in one step, passing further keywords to `plot`.
Constructors raise ValueError for arrays whose shapes disagree or whose values are not finite or out of range; `plot`
raises ValueError for an unknown option and ImportError without matplotlib.
"""

from pydirect.plotting.influence import (
    RandomEffectsDisplay as RandomEffectsDisplay,
    RowInfluenceDisplay as RowInfluenceDisplay,
    ShapleyDisplay as ShapleyDisplay,
)
from pydirect.plotting.inputs import (
    EffectDisplay as EffectDisplay,
    MapDisplay as MapDisplay,
    RelevanceDisplay as RelevanceDisplay,
    SharesDisplay as SharesDisplay,
)
from pydirect.plotting.predictions import (
    CalibrationDisplay as CalibrationDisplay,
    LogScoreDisplay as LogScoreDisplay,
    PredictionIntervalDisplay as PredictionIntervalDisplay,
    ReliabilityDisplay as ReliabilityDisplay,
    SurvivalDisplay as SurvivalDisplay,
)
