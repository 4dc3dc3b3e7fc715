"""A store knows by itself how far it is: damaged or old files never pass for complete ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import StateStoreError
from kafkaclient.streams.declarations import Store
from kafkaclient.streams.runtime.task_store import RocksStore, TaskStore
from kafkaclient.streams.state_directory import ChangelogTopic, StoreDirectory
from kafkaclient.streams.tasks import TaskId
from kafkaclient.types import TopicPartition
from tests.streams.fakes import Clock, InlineDisk

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGELOG = TopicPartition("app-counts-changelog", 0)
Change = tuple[bytes, "bytes | None"]


def opened(path: Path, clock: Clock, retention_s: float = 100.0) -> TaskStore:
    topic = ChangelogTopic(None, retention_s)
    directory = StoreDirectory(path / "counts")
    store: Any = Store("counts")
    return TaskStore(TaskId(0, 0), store, CHANGELOG, topic, directory, InlineDisk(), clock, 1000)


def follow(store: TaskStore, changelog: Sequence[Change]) -> None:
    """Read the changelog to its end."""
    while store.position < len(changelog):
        store.restore(changelog[store.position :][:3])
        store.reached(min(store.position + 3, len(changelog)), len(changelog))


def state(changelog: Sequence[Change]) -> dict[bytes, bytes]:
    return {key: value for key, value in dict(changelog).items() if value is not None}


CHANGES = st.lists(
    st.tuples(st.binary(max_size=2), st.none() | st.binary(min_size=1, max_size=2)), max_size=12
)
DAMAGE = st.sampled_from(["none", "remove", "cut", "empty", "rmtree", "older"])


@settings(max_examples=20)
@given(data=st.data(), before=CHANGES, more=CHANGES, later=CHANGES)
def test_damaged_files_are_noticed(
    data: st.DataObject, before: list[Change], more: list[Change], later: list[Change]
) -> None:
    """Either the files cannot be opened, or the store has what a restore from the changelog has."""
    path, clock = Path(tempfile.mkdtemp()), Clock(1_000_000.0)
    try:
        store = opened(path, clock)
        follow(store, before)
        store.close()
        rocksdb = path / "counts" / "rocksdb"
        shutil.copytree(rocksdb, path / "older")
        store = opened(path, clock)
        follow(store, before + more)
        store.close()
        damage = data.draw(DAMAGE)
        if damage == "rmtree":
            shutil.rmtree(rocksdb)
        elif damage == "older":
            shutil.rmtree(rocksdb)
            shutil.move(path / "older", rocksdb)
        elif damage != "none":
            file = data.draw(st.sampled_from(sorted(rocksdb.iterdir())))
            content = file.read_bytes()
            if damage == "remove":
                file.unlink()
            else:
                left = data.draw(st.integers(0, len(content))) if damage == "cut" else 0
                file.write_bytes(content[:left])
        changelog = before + more + later
        try:
            store = opened(path, clock)
            follow(store, changelog)
            found = dict(store.stored.items())
        except StateStoreError:
            return  # the error says what to do
        store.close()
        assert found == state(changelog)
    finally:
        shutil.rmtree(path)


@pytest.mark.parametrize("how", ["removed", "cut"])
def test_files_that_are_gone_are_told(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    changelog = [(b"%d" % n, b"v") for n in range(50)]
    store = opened(tmp_path, Clock(1_000_000.0))
    follow(store, changelog)
    store.close()
    rocksdb = tmp_path / "counts" / "rocksdb"
    if how == "removed":
        shutil.rmtree(rocksdb)
    else:
        manifest = next(rocksdb.glob("MANIFEST*"))
        manifest.write_bytes(manifest.read_bytes()[:60])
    try:
        store = opened(tmp_path, Clock(1_000_000.0))
    except StateStoreError:
        if how == "removed":
            raise
        return
    assert store.position == 0
    assert "the files of store counts are damaged or were removed" in caplog.text
    store.close()


def test_a_copy_that_was_away_for_too_long_starts_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers have removed the deletions of the keys meanwhile."""
    clock = Clock(1_000_000.0)
    store = opened(tmp_path, clock)
    follow(store, [(b"k", b"v")])
    clock.now += 99
    store.reached(1, 1)
    clock.now += 101
    store.restore([(b"f", b"v")])
    store.reached(7, 7)
    assert (store.position, dict(store.stored.items())) == (0, {})
    assert "is 101 s behind, and keeps deletions for 100 s" in caplog.text
    clock.now += 101
    store.reached(3, 7)
    assert store.position == 3, "a store that is not complete yet would start over for ever"
    store.close()


def test_an_active_task_that_was_away_for_too_long_is_no_complete_copy(tmp_path: Path) -> None:
    """Another instance may have had the task meanwhile."""
    clock = Clock(1_000_000.0)
    store = opened(tmp_path, clock)
    follow(store, [(b"k", b"v")])
    clock.now += 90
    store.mark_current()
    clock.now += 101
    store.mark_current()
    store.reached(1, 1)
    assert store.position == 0
    store.close()


def test_a_living_iteration_does_not_keep_the_files_locked(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "s")
    store.apply([(b"a", b"1"), (b"b", b"2")])
    pairs = store.items()
    assert next(pairs) == (b"a", b"1")
    store.close()
    again = RocksStore(tmp_path / "s")
    assert list(pairs) == []
    again.close()
