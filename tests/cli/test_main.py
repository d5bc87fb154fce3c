"""The command line as a whole: usage, exit codes, errors and warnings, processes."""

import json
import os
import subprocess
import sys

import pytest

import pydirect

FAST = ["--set", "features=linear", "--quiet"]


def test_version_and_help(capsys, run):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"pydirect {pydirect.__version__}\n"
    assert run("show-config") == 0 and capsys.readouterr().out
    for command in ([], ["fit"], ["predict"], ["info"], ["export"], ["demo"], ["show-config"]):
        assert run(*command, "--help") == 0
        assert "usage: pydirect" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["--nonsense"], ["info"], ["info", "a", "b"]])
def test_wrong_usage(arguments, assert_refused):
    assert_refused(*arguments, message="--help)")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("2 TiB"), 2, "not enough memory: 2 TiB"),
        (OSError(28, "No space left on device", "m"), 2, "m: No space left on device"),
        (OSError("odd"), 2, "odd"),
        (ValueError("two\nlines"), 2, "two lines"),
    ],
)
def test_errors_end_in_one_line(tmp_path, data, monkeypatch, error, code, message, assert_refused):
    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fail)
    path = tmp_path / "m"
    arguments = ["fit", data, "--target", "y", "-o", path, *FAST]
    assert_refused(*arguments, code=code, message=f"pydirect: error: {message}")
    assert not path.exists()


def test_errors_of_the_program_itself_keep_their_traceback(tmp_path, data, monkeypatch, run):
    def fail(*arguments, **keywords):
        raise RuntimeError("a mistake in the program")

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST)


def test_warnings_are_one_line(tmp_path, data, capsys, monkeypatch, run):
    import warnings

    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", UserWarning, stacklevel=1)
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST, "--test-fraction", "0") == 0
    assert capsys.readouterr().err == "pydirect: warning: mind the gap\n"


def process(*arguments, **keywords):
    command = [sys.executable, "-m", "pydirect", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)


@pytest.mark.slow
def test_as_a_process(model, data, tmp_path):
    done = process("info", model, "--json")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (0, "") and json.loads(out)["kind"]
    failed = process("info", tmp_path / "no")
    out, err = failed.communicate(timeout=60)
    assert (failed.returncode, out) == (2, "") and err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes behave differently elsewhere")
def test_reader_that_goes_away(model, tmp_path, make_columns, write_csv):
    columns = make_columns(n=40_000)
    data = write_csv(tmp_path / "long.csv", {name: columns[name] for name in ("x", "z", "colour")})
    sender = process("predict", model, data)
    assert sender.stdout.readline() == "prediction,std,lower,upper\n"
    sender.stdout.close()
    assert sender.stderr.read() == ""
    sender.stderr.close()
    assert sender.wait(timeout=60) == 141


def test_help_does_not_import_the_estimators():
    code = "import sys; from pydirect.cli.main import main; main(['--help']);"
    code += "print(sorted(m for m in sys.modules if m.split('.')[0] in {'numpy', 'sklearn', 'scipy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
