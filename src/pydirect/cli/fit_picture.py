"""Picture of `pydirect fit --plot`: held-out predictions and the ELBO."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydirect.cli.common import DEFAULT_LEVEL, CommandError
from pydirect.cli.scoring import Classified


def check_picture(path: Path) -> None:
    """Raise unless matplotlib can write a picture of this name."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError('--plot requires matplotlib. Install it with: pip install "pydirect[plot]"') from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise CommandError(f"{path}: expected a name that ends in {', '.join('.' + name for name in formats)}")


def draw_fit(args: argparse.Namespace, model: Any, scored: list[Any]) -> None:
    """Draw held-out predictions, if any, and the ELBO of the fit, or of draws about it."""
    from matplotlib.figure import Figure

    from pydirect.persistence.atomic import atomic_open
    from pydirect.plotting import (
        CalibrationDisplay,
        ELBODisplay,
        PredictionIntervalDisplay,
        ReliabilityDisplay,
        SequentialDisplay,
    )

    n_rows, n_columns = max(1, len(scored)), 1 if not scored else 2 if hasattr(model, "classes_") else 3
    figure = Figure(figsize=(5.2 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for row, name, p in zip(axes, args.target, scored, strict=False):
        if isinstance(p, Classified):
            ReliabilityDisplay(*p.events(), name=name).plot(ax=row[0])
            continue
        intervals = PredictionIntervalDisplay(p.y, p.mean, p.lower, p.upper, level=DEFAULT_LEVEL)
        intervals.plot(ax=row[0], target_name=name)
        CalibrationDisplay(p.pit).plot(ax=row[1])
    first = model.posteriors_[0]
    if hasattr(first, "log_weights"):
        SequentialDisplay.from_estimator(model, ax=axes[0, -1])
    else:
        ELBODisplay.from_estimator(model, ax=axes[0, -1])
    for row in axes[1:]:
        row[-1].remove()
    with atomic_open(args.plot) as file:
        figure.savefig(file, format=args.plot.suffix[1:].lower())
