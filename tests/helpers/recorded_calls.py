"""Records what the compiled modules return in a run of the tests, to be compared with a run on another machine.

    PYTHONPATH=tests/helpers python -m pytest -p recorded_calls --record-calls=here.npz tests/cpp
    python tests/helpers/recorded_calls.py here.npz there.npz

A call is known by its function and the digest of its arguments, for methods also by the calls before it on the same
object; so only calls with the same bits for arguments are compared, and a difference is that call's own. Any NaN counts
as the same.
"""

import hashlib
import inspect
import sys

import numpy as np

SAMPLE = 16  # entries of the results that are kept to tell how far apart they are
# Depend on the processor by design: they fuse multiply-adds where it can.
FACTORISATIONS = ("cholesky", "inverse_diagonal")
NOT_RECORDED = ("build_config", "isa_levels", "select_isa_level", "default_threads")


def _update(digest, value):
    """Add a value to a digest."""
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value)
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        if value.dtype.kind == "f" and np.isnan(value).any():
            value = np.where(np.isnan(value), value.dtype.type(np.nan), value)
        digest.update(value.data if value.size else b"")
    elif isinstance(value, (tuple, list)):
        digest.update(f"({len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif isinstance(value, np.random.BitGenerator):
        digest.update(repr(value.state).encode())
    elif hasattr(value, "_recorded_state"):
        digest.update(value._recorded_state)
    else:
        digest.update(f"{type(value).__name__}{value!r}".encode())


def digest_of(*values):
    """Digest of nested values."""
    digest = hashlib.blake2b(digest_size=16)
    _update(digest, values)
    return digest.digest()


def _numbers(value):
    """All numbers of nested values, one array after another."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        return [value.ravel()]
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in _numbers(item)]
    return [np.array([value])] if isinstance(value, (float, int)) else []


def _sample(value):
    numbers = _numbers(value)
    every = sum(array.size for array in numbers) // SAMPLE + 1
    picked = np.concatenate([array[::every] for array in numbers] or [[]]).astype(float)[:SAMPLE]
    return np.pad(picked, (0, SAMPLE - picked.size))


class Recorder:
    """Stands in for the functions and classes of the compiled modules."""

    def __init__(self):
        self.calls = {}  # (function, digest of the arguments): (digest of the results, a few of them)
        self.unstable = set()  # gave other results for the same arguments on this machine

    def record(self, name, key, results):
        """Keep the results of one call."""
        found = digest_of(results)
        before = self.calls.setdefault((name, key), (found, _sample(results)))
        if before[0] != found:
            self.unstable.add((name, key))

    def function(self, name, function):
        """Return the function, recorded."""

        def recorded(*arguments, **options):
            key = digest_of(arguments, sorted(options.items()))
            result = function(*arguments, **options)
            self.record(name, key, (result, arguments, list(options.values())))
            return result

        recorded.__doc__ = function.__doc__
        return recorded

    def subclass(self, name, base):
        """Return the class with recorded methods and properties."""
        recorder = self

        def __init__(instance, *arguments, **options):
            instance._recorded_state = digest_of(name, arguments, sorted(options.items()))
            base.__init__(instance, *arguments, **options)

        def method(attribute, function):
            def recorded(instance, *arguments, **options):
                key = digest_of(instance._recorded_state, attribute, arguments, sorted(options.items()))
                instance._recorded_state = key
                result = function(instance, *arguments, **options)
                recorder.record(f"{name}.{attribute}", key, (result, arguments, list(options.values())))
                return result

            return recorded

        def read(attribute, getter):
            def recorded(instance):
                result = getter(instance)
                recorder.record(f"{name}.{attribute}", instance._recorded_state, result)
                return result

            return property(recorded)

        members = {"__init__": __init__}
        for attribute, member in inspect.getmembers(base):
            if not attribute.startswith("_"):
                wrap = read if isinstance(member, property) else method
                members[attribute] = wrap(attribute, member.fget if isinstance(member, property) else member)
        return type(name, (base,), members)

    def wrap(self, module):
        """Replace everything callable in a module."""
        for name, member in list(vars(module).items()):
            if name.startswith("_") or name in NOT_RECORDED:
                continue
            if inspect.isclass(member):
                setattr(module, name, self.subclass(name, member))
            elif callable(member):
                setattr(module, name, self.function(name, member))

    def save(self, path):
        """Write the calls as one npz file."""
        stable = {call: result for call, result in self.calls.items() if call not in self.unstable}
        np.savez_compressed(
            path,
            function=np.array([name for name, _ in stable], dtype=str),
            key=np.array([key.hex() for _, key in stable], dtype=str),
            result=np.array([digest.hex() for digest, _ in stable.values()], dtype=str),
            sample=np.array([sample for _, sample in stable.values()]).reshape(-1, SAMPLE),
            unstable=np.array([name for name, _ in self.unstable], dtype=str),
        )


def pytest_addoption(parser):
    parser.addoption("--record-calls", metavar="FILE", help="npz file of what the compiled modules return")


def pytest_configure(config):
    if config.getoption("--record-calls"):
        from pydirect import _core, _random

        # What is written into must not hold what was in memory before.
        np.empty, np.empty_like = np.zeros, np.zeros_like
        config.recorded_calls = Recorder()
        config.recorded_calls.wrap(_core)
        config.recorded_calls.wrap(_random)


def pytest_unconfigure(config):
    if hasattr(config, "recorded_calls"):
        config.recorded_calls.save(config.getoption("--record-calls"))


def _read(path):
    with np.load(path) as file:
        calls = zip(file["function"], file["key"], file["result"], file["sample"], strict=True)
        by_call = {(function, key): (result, sample) for function, key, result, sample in calls}
        return by_call, sorted(set(file["unstable"]))


def main(paths):
    """Print per function how many calls have the same bits, and return the number that should and do not."""
    (here, unstable_here), (there, unstable_there) = map(_read, paths)
    for path, unstable in zip(paths, (unstable_here, unstable_there), strict=True):
        print(f"{path}: more than one result for the same arguments: {', '.join(unstable) or 'never'}")
    print(f"{'function':44}{'only here':>10}{'only there':>11}{'in both':>9}{'same bits':>10}   largest difference")
    different = totals = same_total = 0
    for function in sorted({name for name, _ in here} | {name for name, _ in there}):
        ours, theirs = ({key for name, key in calls if name == function} for calls in (here, there))
        both = [((function, key)) for key in ours & theirs]
        unequal = [call for call in both if here[call][0] != there[call][0]]
        note = ""
        if unequal:
            a, b = (np.array([calls[call][1] for call in unequal]) for calls in (here, there))
            scale = np.maximum(np.abs(a), np.abs(b)).max(axis=1, keepdims=True)
            with np.errstate(all="ignore"):
                note = f"   {np.nanmax(np.abs(a - b) / scale):.1e} of the call's largest number"
        same = len(both) - len(unequal)
        exempt = function in FACTORISATIONS
        print(
            f"{function:44}{len(ours - theirs):10}{len(theirs - ours):11}{len(both):9}{same:10}{note}"
            f"{'   (may differ)' if exempt else ''}"
        )
        if not exempt:
            different, totals, same_total = different + len(unequal), totals + len(both), same_total + same
    print(f"same bits in {same_total} of {totals} calls with the same arguments, factorisations aside")
    return different


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
