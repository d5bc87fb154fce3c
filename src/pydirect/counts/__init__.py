"""Counts with a log link: Poisson and negative binomial regression from weighted sums over rows."""

__all__: list[str] = []
