"""pydirect as a model of AutoGluon, which is what TabArena takes: https://github.com/autogluon/tabarena.

`DirectModel` is passed in a dictionary of hyperparameters, ``TabularPredictor.fit(..., hyperparameters={DirectModel:
{}})``; `experiments` are those of TabArena. Columns of numbers, categories and gaps go to the estimators as they are.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd
from autogluon.core.models import AbstractModel

import pydirect

SEARCHED_FUNCTIONS = (250, 500, 1000, 2000)  # numbers of basis functions


class DirectModel(AbstractModel):
    """`DirectRegressor` and `DirectClassifier`, or the kernel pooled with trees if ``pooled`` is true."""

    ag_key = "PYDIRECT"
    ag_name = "pydirect"
    seed_name = "random_state"
    problems: ClassVar = ["regression", "quantile", "binary", "multiclass"]

    def _fit(self, X: pd.DataFrame, y: pd.Series, sample_weight: Any = None, **kwargs: Any) -> None:
        params = self._get_model_params()
        kind = "Pooled" if params.pop("pooled") else "Direct"
        target = "Classifier" if self.problem_type in ("binary", "multiclass") else "Regressor"
        self.model = getattr(pydirect, kind + target)(**params)
        self.model.fit(self.preprocess(X, is_train=True), y, sample_weight=sample_weight)

    def _predict_proba(self, X: pd.DataFrame, **kwargs: Any) -> Any:
        if self.problem_type == "quantile":
            return self.model.predict_quantiles(self.preprocess(X), self.quantile_levels)
        return super()._predict_proba(X, **kwargs)

    def _set_default_params(self) -> None:
        for name, value in {"pooled": False, "random_state": 0}.items():
            self._set_default_param_value(name, value)

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        """Return AutoGluon's names of what can be predicted."""
        return list(cls.problems)

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        return super()._get_default_auxiliary_params() | {"valid_raw_types": ["int", "float", "category"]}

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": True}


def experiments(n_random: int = 0) -> list[Any]:
    """Return TabArena's experiments: the defaults, and as many drawn configurations."""
    from autogluon.common.space import Categorical
    from tabarena.utils.config_utils import ConfigGenerator

    space = {"pooled": Categorical(False, True), "n_basis_functions": Categorical(*SEARCHED_FUNCTIONS)}
    generator = ConfigGenerator(model_cls=DirectModel, manual_configs=[{}, {"pooled": True}], search_space=space)
    found: list[Any] = generator.generate_all_bag_experiments(num_random_configs=n_random)
    return found
