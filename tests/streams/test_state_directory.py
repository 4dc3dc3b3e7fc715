"""The lock of a state directory, its reported tasks, and its cleanup."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import StateStoreError
from kafkaclient.streams import TaskId
from kafkaclient.streams.state_directory import (
    UNKNOWN_CHANGELOG,
    ChangelogTopic,
    StateDirectory,
    TaskDirectory,
)
from tests.streams.fakes import Clock, on_disk

if TYPE_CHECKING:
    from pathlib import Path

A, B = TaskId(0, 0), TaskId(0, 1)


def opened(path: Path, clock: Clock | None = None) -> StateDirectory:
    return StateDirectory(path, clock or Clock())


def prepared(directory: TaskDirectory) -> int | None:
    directory.prepare(["counts"])
    checkpoint = directory.store("counts").load_or_wipe(UNKNOWN_CHANGELOG, time.time())
    return None if checkpoint is None else checkpoint.offset


def test_a_process_keeps_its_id(tmp_path: Path) -> None:
    first = opened(tmp_path / "app")
    first.close()
    second = opened(tmp_path / "app")
    assert second.process_id == first.process_id
    second.close()


def test_a_directory_can_be_locked_once(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from kafkaclient.streams.state_directory import StateDirectory\n"
        "d = StateDirectory(pathlib.Path(sys.argv[1]), float)\n"
        "print('mine', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        with pytest.raises(StateStoreError, match=f"in use by process {other.pid}"):
            opened(tmp_path)
        other.kill()
        other.wait()
    opened(tmp_path).close()  # a lock dies with its process


def test_an_empty_process_id_file_gets_a_new_id(tmp_path: Path) -> None:
    (tmp_path / "process-id").touch()
    directory = opened(tmp_path)
    directory.close()
    assert (tmp_path / "process-id").read_text() == f"{directory.process_id}\n"


def test_a_damaged_process_id_raises_and_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / "process-id").write_text("no id")
    for _ in range(2):
        with pytest.raises(StateStoreError, match="process-id cannot be used"):
            opened(tmp_path)


def test_an_unusable_directory_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateStoreError, match="cannot be used"):
        opened(tmp_path / "file" / "app")


def test_only_valid_checkpoints_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    for task, offset in ((A, 7), (B, 9)):
        assert prepared(directory.task(task)) is None
        on_disk(directory, task, offset)
    (tmp_path / "1_0").mkdir()
    (tmp_path / "lost+found").mkdir()
    assert directory.report() == {A: 7, B: 9}
    (tmp_path / "0_1" / "counts" / "checkpoint").write_text("garbage")
    assert directory.report() == {A: 7}
    assert "0_1/counts/checkpoint is damaged" in caplog.text
    directory.close()


def test_a_store_without_valid_checkpoint_is_removed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    task = directory.task(A)
    on_disk(directory, A, 7)
    store = task.store("counts")
    assert prepared(task) == 7
    assert store.rocksdb.exists()
    (store.path / "checkpoint").write_text("garbage")
    assert prepared(task) is None
    assert not store.rocksdb.exists()
    directory.close()


def test_a_directory_of_another_store_raises(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    task = directory.task(A)
    on_disk(directory, A, 7, "totals")
    with pytest.raises(StateStoreError, match=r"'totals'.*does not know.*counts"):
        prepared(task)
    assert directory.report() == {A: 7}, "the state was lost"
    directory.close()


def test_a_task_reports_the_sum_of_its_stores(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    on_disk(directory, A, 7, "counts")
    on_disk(directory, A, 5, "totals")
    assert directory.report() == {A: 12}
    directory.close()


def test_a_store_that_may_lack_deletions_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = opened(tmp_path)
    store = directory.task(A).store("counts")
    on_disk(directory, A, 7)
    assert store.load_or_wipe(ChangelogTopic(None, 3600.0), time.time() + 3700) is None
    assert not store.rocksdb.exists()
    assert "keeps deletions for 3600 s (delete.retention.ms). The store is restored" in caplog.text
    directory.close()


def test_cleaning_waits_and_keeps_reported_tasks(tmp_path: Path) -> None:
    clock = Clock(0.0)
    directory = opened(tmp_path, clock)
    for task in (A, B):
        on_disk(directory, task, 1)
    assert directory.clean([A], delay=600) == []
    clock.now = 601
    directory.report()
    assert directory.clean([A], delay=600) == [], "the leader counts on it"
    directory.release()
    assert directory.clean([A], delay=600) == [B]
    assert not directory.task(B).path.exists()
    assert directory.clean([], delay=600) == [], "in use until now"
    clock.now = 1000
    assert directory.clean([A], delay=600) == []
    assert directory.clean([], delay=600) == [], "the time counts from its last use"
    directory.close()
