"""Tables, a fitted model and runs of the command line."""

import csv

import numpy as np
import pytest

from pydirect.cli.main import main

FAST = ["--set", "features=linear", "--quiet"]


def _make_columns(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    colour = rng.choice(["red", "green", "blue"], size=n)
    y = 1.0 + 2.0 * x - z + 3.0 * (colour == "red") + 0.1 * rng.normal(size=n)
    return {"x": x, "colour": colour, "z": z, "y": y, "y2": -y + x, "w": rng.uniform(0.5, 2.0, n)}


def _write_csv(path, columns):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def _run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def make_columns():
    """Return a function that makes the columns of a table."""
    return _make_columns


@pytest.fixture
def write_csv():
    """Return a function that writes columns to a file."""
    return _write_csv


@pytest.fixture
def read_csv():
    """Return a function that reads columns from text: numbers, or else text."""

    def read(text):
        header, *rows = csv.reader(text.splitlines())
        columns = {}
        for name, values in zip(header, zip(*rows, strict=True), strict=True):
            try:
                columns[name] = np.array(values, dtype=float)
            except ValueError:
                columns[name] = np.array(values)
        return columns

    return read


@pytest.fixture
def run():
    """Return a function that runs the command line and returns its exit code."""
    return _run


@pytest.fixture
def assert_refused(capsys):
    """Return a function that runs a command, which must fail with an error of one line and no output."""

    def check(*arguments, message, code=2):
        assert _run(*arguments) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        (error,) = [line for line in captured.err.splitlines() if not line.startswith("pydirect: warning: ")]
        assert error.startswith("pydirect: error: ") and message in error
        return error

    return check


@pytest.fixture
def data(tmp_path):
    """Return the path of a table."""
    return _write_csv(tmp_path / "data.csv", _make_columns())


@pytest.fixture
def model(tmp_path, data, capsys):
    """Return the path of a model fitted to the table."""
    path = tmp_path / "m.pydirect"
    assert _run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, *FAST) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def csv_file(tmp_path):
    """Return a function that writes a CSV file."""

    def make(content, encoding="utf-8"):
        path = tmp_path / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return make
