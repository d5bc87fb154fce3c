"""What a row or a column did to a prediction: influence, leave-one-out predictions, effects and Shapley values."""

from pydirect.explain.effects import Effect as Effect, Effects as Effects, effects as effects
from pydirect.explain.rows import (
    LeftOutRows as LeftOutRows,
    RowEffects as RowEffects,
    RowInfluence as RowInfluence,
    compare_left_out as compare_left_out,
)
from pydirect.explain.shapley import ShapleyValues as ShapleyValues, shapley_values as shapley_values
