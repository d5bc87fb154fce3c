"""Tables and the picture of `run.py`'s figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models import MODELS
from problems import SIZES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "benchmarks.md", DOCS / "images" / "peers.svg"
BEGIN, END = "<!-- run.py writes from here -->", "<!-- to here -->"
LARGE = 5000
SCORES = ("rmse", "nlpd", "crps", "interval_score")
COLUMNS = (*SCORES, "coverage", "fit_seconds", "predict_seconds")
HEADS = ("RMSE", "NLPD", "CRPS", "interval score", "coverage", "fit, s", "predict, s")
WHY = {
    "time": "over the time limit",
    "memory": "over the memory limit",
    "failed": "failed",
    "few rows": "for larger sets",
}

Means = dict[str, dict[str, np.ndarray]]  # of COLUMNS, by set and model


class Summary:
    """Means over the folds on which all models were tried that were tried on the set at all."""

    def __init__(self, found: dict[str, Any]) -> None:
        records = {(r["set"], r["fold"], r["model"]): r for r in found["results"]}
        self.models = [m for m in MODELS if any(key[2] == m for key in records)]
        self.means: Means = {}
        self.missing: dict[str, dict[str, str]] = {}
        self.folds: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, int]] = {}
        for name in SIZES:
            folds = sorted({fold for set_, fold, _ in records if set_ == name})
            tried = [m for m in self.models if folds and (name, folds[0], m) in records]
            folds = [k for k in folds if all((name, k, m) in records for m in tried)]
            if not folds:
                continue
            self.folds[name], self.means[name] = len(folds), {}
            self.missing[name] = dict.fromkeys((m for m in self.models if m not in tried), "not tried")
            for model in tried:
                each = [records[name, k, model] for k in folds]
                without = [r for r in each if r["status"] != "ok"]
                if without:
                    status = without[0]["status"]
                    self.missing[name][model] = WHY.get(status) or f"left out since {without[0]['since']}"
                else:
                    self.shapes[name] = each[0]["rows"], each[0]["columns"]
                    self.means[name][model] = np.mean([[r[c] for c in COLUMNS] for r in each], axis=0)

            if not self.means[name]:
                del self.means[name], self.missing[name], self.folds[name]

    def complete(self) -> list[str]:
        """Return the sets that every model finished which is for sets of this size."""
        few = WHY["few rows"]
        return [name for name, missing in self.missing.items() if all(why == few for why in missing.values())]

    def large(self) -> list[str]:
        """Return the sets of many rows."""
        return [name for name in self.means if SIZES[name] >= LARGE]

    def compared(self, names: list[str]) -> dict[str, dict[str, float]]:
        """Return what the summary tables show of each model that finished all these sets."""
        models = [m for m in self.models if all(m in self.means[name] for name in names)]
        values = np.array([[self.means[name][m] for m in models] for name in names])  # sets, models, columns
        if not models or not names:
            return {}
        best = {c: values[:, :, [k]].min(axis=1) for k, c in enumerate(COLUMNS)}
        rank = {c: 1 + (values[:, None, :, k] < values[:, :, None, k]).sum(axis=2) for k, c in enumerate(COLUMNS)}
        rows = {}
        for i, model in enumerate(models):
            own = {c: values[:, i, k] for k, c in enumerate(COLUMNS)}
            rows[model] = {
                "rank": float(rank["nlpd"][:, i].mean()),
                "first": float((rank["nlpd"][:, i] == 1).sum()),
                "nlpd": float(np.mean(own["nlpd"] - best["nlpd"][:, 0])),
                "coverage": float(own["coverage"].mean()),
                "fit_seconds": geometric(own["fit_seconds"]),
                "predict_seconds": geometric(own["predict_seconds"]),
            } | {c: geometric(own[c] / best[c][:, 0]) for c in ("rmse", "crps", "interval_score")}
        return rows


def geometric(values: np.ndarray) -> float:
    """Geometric mean; a clock that did not move counts as a tenth of a millisecond."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-4)))))


# --- tables


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, numbers to the right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(found: dict[str, Any]) -> str:
    """Return everything that is shown, as Markdown."""
    summary = Summary(found)
    if not summary.means:
        return "No set has been finished by all models."
    versions = ", ".join(f"{name} {version}" for name, version in found["machine"]["versions"].items())
    limits = found["limits"]
    parts = [
        f"{found['machine']['processor']}; {found['machine']['system']}; {versions}. "
        f"At most {limits['seconds']:g} s and {limits['gibibytes']:g} GiB a fit."
    ]
    complete, large = summary.complete(), summary.large()
    if complete:
        parts += ["### Sets that everyone finished", listed(summary, complete), summary_table(summary, complete)]
    if large:
        parts += [f"### Sets of {LARGE} rows or more", listed(summary, large), summary_table(summary, large)]
    parts += ["### Every set"] + [one_set(summary, name) for name in summary.means]
    return "\n\n".join(parts)


def listed(summary: Summary, names: list[str]) -> str:
    """Return names with their numbers of rows."""
    return "Sets: " + ", ".join(f"{name} ({SIZES[name]})" for name in names) + "."


def summary_table(summary: Summary, names: list[str]) -> str:
    """Return the table of a group of sets, by mean rank."""
    head = ["model", "rank", "first", "NLPD − best", "RMSE / best", "CRPS / best", "interval score / best"]
    rows = [
        [model, f"{r['rank']:.1f}", f"{r['first']:.0f}", f"{r['nlpd']:.2f}"]
        + [f"{r[c]:.2f}" for c in ("rmse", "crps", "interval_score")]
        + [f"{r['coverage']:.3f}", f"{r['fit_seconds']:.2g}", f"{r['predict_seconds']:.2g}"]
        for model, r in sorted(summary.compared(names).items(), key=lambda item: item[1]["rank"])
    ]
    absent = [m for m in summary.models if m not in dict.fromkeys(row[0] for row in rows)]
    note = f"\n\nNot on all of these sets: {', '.join(absent)}." if absent else ""
    return table([*head, "coverage", "fit, s", "predict, s"], rows) + note


def one_set(summary: Summary, name: str) -> str:
    """Return the folded table of a set, the best scores in bold."""
    (n, d), folds, means = summary.shapes[name], summary.folds[name], summary.means[name]
    best = {k: min(row[k] for row in means.values()) for k in range(len(SCORES))}
    rows = []
    for model in summary.models:
        if model in means:
            numbers = [f"{value:.4g}" for value in means[model][: len(SCORES)]]
            numbers = [f"**{t}**" if means[model][k] == best[k] else t for k, t in enumerate(numbers)]
            coverage, fit, predict = means[model][len(SCORES) :]
            rows.append([model, *numbers, f"{coverage:.3f}", f"{fit:.2g}", f"{predict:.2g}"])
        else:
            rows.append([model, summary.missing[name][model], *[""] * (len(COLUMNS) - 1)])
    title = f"{name}: {n} training rows, {d} columns, {folds} fold{'s' * (folds > 1)}"
    return f":::{{dropdown}} {title}\n{table(['model', *HEADS], rows)}\n:::"


def write_docs(found: dict[str, Any]) -> None:
    """Put tables and picture into docs/."""
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(found)}\n\n{END}{after}")
    draw(found, PICTURE)


# --- the picture

GREY = "#808080"  # legible on white and on black
KINDS: dict[str, tuple[str, str]] = {
    "DirectRegressor": ("#e0701c", "o"),
    "DVIRegressor": ("#e0701c", "o"),
    "BayesianRidge": (GREY, "D"),
    "scikit-learn GP": ("#3f8fd0", "s"),
    "GPyTorch exact": ("#3f8fd0", "s"),
    "GPyTorch SVGP": ("#3f8fd0", "s"),
    "GPBoost": ("#3f8fd0", "s"),
}
TREES = ("#2f9e63", "^")


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw errors beside seconds, one panel per group of sets."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    summary = Summary(found)
    panels: list[tuple[str, dict[str, dict[str, float]]]] = []
    for title, names in (("Sets that everyone finished", summary.complete()), ("Large sets", summary.large())):
        if names:
            panels.append((f"{title}: {len(names)}", summary.compared(names)))
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": "peers", "font.size": 9}):
        figure = Figure(figsize=(4.4 * len(panels) + 0.4, 4.2), layout="constrained")
        for ax, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            for model, row in rows.items():
                color, marker = KINDS.get(model, TREES)
                ax.plot(row["fit_seconds"], row["crps"], marker, color=color, ms=7)
            ax.set(xscale="log", title=title, xlabel="seconds of a fit, geometric mean", ylabel="CRPS / best")
            ax.margins(x=0.3, y=0.1)
            ax.set_facecolor("none")
            ax.tick_params(colors=GREY, which="both")
            ax.spines[["top", "right"]].set_visible(False)
            ax.spines[["left", "bottom"]].set_color(GREY)
            for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
                text.set_color(GREY)
        figure.draw_without_rendering()  # places the axes
        for ax, (_, rows) in zip(figure.axes, panels, strict=True):
            name_points(ax, rows)
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def name_points(ax: Any, rows: dict[str, dict[str, float]]) -> None:
    """Write names beside points, each at the first of ten places that is free, else at the first."""
    from matplotlib.transforms import Bbox

    points = {m: ax.transData.transform((row["fit_seconds"], row["crps"])) for m, row in rows.items()}
    taken = [Bbox.from_bounds(x - 7, y - 7, 14, 14) for x, y in points.values()]
    places = [(7, 0, "left", "center"), (-7, 0, "right", "center"), (0, 7, "center", "bottom")]
    places += [(0, -7, "center", "top"), (5, 5, "left", "bottom"), (5, -5, "left", "top")]
    places += [(-5, 5, "right", "bottom"), (-5, -5, "right", "top"), (5, -9, "left", "top"), (5, 9, "left", "bottom")]
    for model, row in rows.items():
        texts = []
        for x, y, horizontal, vertical in places:
            text = ax.annotate(
                model,
                (row["fit_seconds"], row["crps"]),
                (x, y),
                textcoords="offset points",
                color=KINDS.get(model, TREES)[0],
                fontsize=8,
                ha=horizontal,
                va=vertical,
            )
            texts.append((text, text.get_window_extent()))
        free = [item for item in texts if not any(item[1].overlaps(box) for box in taken)]
        chosen, box = (free or texts)[0]
        taken.append(box)
        for text, _ in texts:
            if text is not chosen:
                text.remove()
