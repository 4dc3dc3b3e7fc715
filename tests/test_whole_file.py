"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """As on a full disk, a part of a longer text can be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_half_written(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "plan.json"
    if exists:
        path.write_text("before")
    with files_limited_to(1000), pytest.raises(OSError, match="File too large") as failed:
        write_whole(path, "x" * 1001)
    assert failed.value.filename == str(path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"] * exists


def test_a_link_and_permissions_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "plan.json", tmp_path / "link"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "after\n")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after\n", 0o640)
    assert link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_device_is_written_to(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_whole(Path("/dev/full"), "x")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "x\r\n")
        assert os.read(descriptor, 10) == b"x\r\n"
    finally:
        os.close(descriptor)


WRITE = """
import sys
from pathlib import Path
from kafkaclient.whole_file import write_whole
write_whole(Path(sys.argv[1]), "plan\\n")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_descriptor_is_written_to(tmp_path: Path, name: str) -> None:
    """Also if a pipe is behind it, or a file that has text of other writers."""
    command = [sys.executable, "-c", WRITE, name]
    piped = subprocess.run(command, capture_output=True, check=True)
    assert piped.stdout == b"plan\n"
    shared = tmp_path / "out"
    with shared.open("w") as file:
        for text in ("before\n", "after\n"):
            file.write(text)
            file.flush()
            subprocess.run(command, stdout=file, check=True)
    assert shared.read_text() == "before\nplan\nafter\nplan\n"


def test_a_file_that_may_not_be_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("before")
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may write it
    with pytest.raises(PermissionError) as failed:
        write_whole(path, "after")
    assert failed.value.filename == str(path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


def test_a_text_is_never_readable_for_more_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("before")
    path.chmod(0o600)
    modes = []

    def replace(new: Path, _: Path) -> None:
        modes.append(new.stat().st_mode & 0o777)
        assert new.read_text() == "after"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    chmod = Path.chmod

    def changed(new: Path, mode: int) -> None:
        assert new.read_text() == ""
        chmod(new, mode)

    monkeypatch.setattr(Path, "chmod", changed)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "after")
    assert (modes, path.read_text()) == ([0o600], "before")
    assert len(list(tmp_path.iterdir())) == 1


def test_an_error_names_the_file_also_where_nothing_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is mounted read-only refuses to remove a file that is not there."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "another name")

    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(OSError, match="Read-only") as failed:
        write_whole(tmp_path / "plan.json", "after")
    assert failed.value.filename == str(tmp_path / "plan.json")
