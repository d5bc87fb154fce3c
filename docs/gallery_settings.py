"""Order and looks of the gallery; its examples are plain matplotlib."""

from __future__ import annotations

from typing import Any

SECTIONS = ("uncertainty", "many", "weights", "devices", "decisions")

# Examples in the order in which to read them; others follow.
ORDER = (
    "plot_intervals.py",
    "plot_calibration.py",
    "plot_motorcycle.py",
    "plot_counts.py",
    "plot_classes.py",
    "plot_left_out.py",
    "plot_blocks.py",
    "plot_groups.py",
    "plot_tiles.py",
    "plot_forgetting_stream.py",
    "plot_sparse.py",
    "plot_two_weights.py",
    "plot_elbo_against_reinforce.py",
    "plot_dvi_varying_noise.py",
    "plot_exact_network.py",
    "plot_thompson_sampling.py",
    "plot_optuna_sampler.py",
)

# Okabe and Ito's colours on white, which also suit dark pages.
STYLE = {
    "axes.prop_cycle": "cycler('color', ['0072B2', 'D55E00', '009E73', 'CC79A7', 'E69F00', '56B4E9', '333333'])",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "legend.frameon": False,
    "savefig.facecolor": "white",
}


def order_of(name: str) -> tuple[int, str]:
    """Return what to sort the examples of a section by."""
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def order_of_section(path: str) -> int:
    """Return what to sort sections by."""
    return SECTIONS.index(path.replace("\\", "/").rpartition("/")[2])


def set_style(gallery_conf: dict[str, Any], file_name: str) -> None:
    """Set the looks of all pictures; called before each example."""
    import matplotlib

    matplotlib.rcParams.update(STYLE)
