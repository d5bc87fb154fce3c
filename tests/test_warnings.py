import threading
import warnings

import pytest

from pydirect._threads import for_each, ordered_map
from pydirect._warnings import ignored, warn


class OurWarning(UserWarning):
    pass


def test_only_the_given_category_is_ignored_and_only_inside():
    with ignored(OurWarning):
        warn("ignored", OurWarning, 1)
        with pytest.warns(UserWarning, match="shown"):
            warn("shown", UserWarning, 1)
        with ignored():
            warn("ignored", UserWarning, 1)
    with pytest.warns(OurWarning, match="outside"):
        warn("outside", OurWarning, 1)


def test_a_warning_points_at_the_line_that_warns():
    with pytest.warns(OurWarning) as caught:
        warn("here", OurWarning, 1)
    assert caught[0].filename == __file__


def test_another_thread_is_warned_while_one_ignores():
    inside, done = threading.Event(), threading.Event()

    def ignore():
        with ignored():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=ignore)
    thread.start()
    assert inside.wait(10)
    before = list(warnings.filters)
    with pytest.warns(OurWarning, match="mine"):
        warn("mine", OurWarning, 1)
    done.set()
    thread.join()
    assert warnings.filters == before


def test_threads_started_for_a_call_ignore_what_the_call_ignores():
    def task(i):
        warn("ignored", OurWarning, 1)
        return i

    with ignored(OurWarning):
        assert for_each(task, range(4), 2, threading.Event()) == [0, 1, 2, 3]
        assert list(ordered_map(task, iter(range(4)), 2)) == [0, 1, 2, 3]
    with pytest.warns(OurWarning):
        for_each(task, range(4), 2, threading.Event())
