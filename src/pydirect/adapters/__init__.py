"""What other packages expect: a model for river, a sampler for Optuna."""

__all__: list[str] = []
