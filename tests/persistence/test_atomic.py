"""Atomic writing: a write that fails leaves the old file unchanged and no other behind."""

import builtins
import errno
import os

import numpy as np
import pytest

from pydirect.persistence.container import read, write


class FullDisk:
    """A file on a disk that is full after a number of bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, content):
        size = memoryview(content).nbytes
        if size > self.room:
            self.file.write(memoryview(content).cast("B")[: self.room])
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= size
        return self.file.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *arguments):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.fixture
def untouched(path):
    """Write an old file; after the test it must be as before, and alone."""
    write(path, "old", {"n": 1}, {"a": np.arange(3.0)})
    content = path.read_bytes()
    yield path
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("room", [0, 10, 64, 100, 300])
def test_full_disk(untouched, monkeypatch, room):
    real = builtins.open
    monkeypatch.setattr(builtins, "open", lambda *a, **k: FullDisk(real(*a, **k), room))
    with pytest.raises(OSError, match="No space left"):
        write(untouched, "new", {}, {"a": np.zeros(1000)})
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), KeyboardInterrupt()])
def test_failure_at_the_end(untouched, monkeypatch, name, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(type(error)):
        write(untouched, "new", {}, {"a": np.zeros(10)})
    monkeypatch.undo()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_directory_without_permission(untouched):
    os.chmod(untouched.parent, 0o555)
    try:
        with pytest.raises(PermissionError):
            write(untouched, "new", {}, {})
    finally:
        os.chmod(untouched.parent, 0o755)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links and permission bits")
def test_links_and_permissions_survive(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    write(target, "old", {}, {})
    os.chmod(target, 0o640)
    link.symlink_to(target)
    write(link, "new", {}, {})
    assert link.is_symlink()
    assert read(target).kind == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_long_file_names_leave_room_for_the_temporary_one(tmp_path):
    path = tmp_path / ("x" * 255)
    write(path, "k", {}, {})
    assert read(path).kind == "k"


def test_a_missing_directory_is_reported_by_the_given_name(tmp_path):
    path = tmp_path / "nowhere" / "model"
    with pytest.raises(FileNotFoundError) as error:
        write(path, "kind", {}, {})
    assert error.value.filename == str(path) and "tmp'" not in str(error.value)
