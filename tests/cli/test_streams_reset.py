"""``kafkaclient streams reset`` on the fake cluster."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.cli.app import app
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.streams.test_description import TASKS, A, answer_with, group

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    Run = Callable[..., Result]

POSITIONS = f"app-{UUID(int=7)}"
T0, T1 = TopicPartition("in", 0), TopicPartition("in", 1)
OWN = ["app-s-changelog", "app-words-repartition"]
OTHERS = ["app2-s-changelog", "in", "other-s-changelog"]
AMBIGUOUS = "app-2-s-changelog"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster(3, partitions=2)
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=cluster, rng=Random(1)))

    async def fill() -> None:
        async with Admin(cluster.bootstrap, dialer=cluster, rng=Random(1)) as admin:
            for name in (*OWN, *OTHERS):
                await admin.create_topic(name, 2)
            async with Producer(cluster.bootstrap, dialer=cluster) as producer:
                for second in range(10):
                    await producer.send("in", b"", partition=0, timestamp_ms=second * 1000)
            await admin.alter_offsets("app", {T0: 6})
            await admin.alter_offsets("app-2", {TopicPartition("in", 0): 1})
            await admin.alter_offsets(POSITIONS, {TopicPartition("app-s-changelog", 0): 3})
            await admin.alter_offsets(f"app-2-{UUID(int=7)}", {T0: 3})

    asyncio.run(fill())
    cluster.delete_records("in", 0, 2)
    return cluster


@pytest.fixture
def run(fake: FakeCluster) -> Run:
    def invoke(*words: str, application: str = "app") -> Result:
        command = ["streams", "reset", application, *words]
        return CliRunner().invoke(app, [*command, "--bootstrap-server", fake.bootstrap])

    return invoke


def brokers_have(fake: FakeCluster) -> tuple[list[str], list[str], dict[TopicPartition, int]]:
    """The topics, the groups, and the application's offsets."""

    async def read() -> Any:
        async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
            return (
                sorted(await admin.list_topics()),
                [each.group_id for each in await admin.list_groups()],
                await admin.committed_offsets("app"),
            )

    return asyncio.run(read())  # type: ignore[no-any-return]


def test_everything_of_the_application_and_nothing_else(fake: FakeCluster, run: Run) -> None:
    done = run("--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {
        "application_id": "app",
        "members": [],
        "offsets": [
            {"topic": "in", "partition": 0, "before": 6, "after": 2},
            {"topic": "in", "partition": 1, "before": None, "after": 0},
        ],
        "deleted_topics": OWN,
        "deleted_groups": [POSITIONS],
        "ambiguous_topics": [],
        "done": True,
        "state_removed": False,
    }
    topics, groups, offsets = brokers_have(fake)
    assert topics == OTHERS
    assert groups == ["app", "app-2", f"app-2-{UUID(int=7)}"]
    assert offsets == {T0: 2, T1: 0}


@pytest.mark.parametrize(
    ("words", "offset"),
    [
        (["--to", "earliest"], 2),
        (["--to", "latest"], 10),
        (["--to", "5"], 5),
        (["--to", "1"], 2),
        (["--to", "99"], 10),
        (["--to", "-3"], 7),
        (["--to", "1970-01-01T00:00:07.500"], 8),
        (["--to", "1970-01-01T01:00:07+01:00"], 7),
        (["--to", "2026-11-23"], 10),
        (["--to", "2-"], 4),
        (["--to", "+2"], 8),
    ],
)
def test_where_it_begins(fake: FakeCluster, run: Run, words: list[str], offset: int) -> None:
    before = brokers_have(fake)
    shown = run("--dry-run", "--json", *words)
    assert json.loads(shown.stdout)["offsets"][0]["after"] == offset
    assert brokers_have(fake) == before
    assert run("--yes", *words).exit_code == 0
    assert brokers_have(fake)[2][T0] == offset


@pytest.mark.parametrize("to", ["earliest", "+1"])
def test_a_partition_without_a_leader_is_not_left_out(fake: FakeCluster, run: Run, to: str) -> None:
    fake.move_leader("in", 0, -1)
    before = brokers_have(fake)
    refused = run("--yes", "--to", to)
    assert refused.exit_code == 1
    assert "the offsets of in-0 are not known" in refused.stderr
    assert brokers_have(fake) == before


def create(fake: FakeCluster, *names: str, offsets: dict[str, str] | None = None) -> None:
    """Topics, and offsets of a topic in a group (group -> topic)."""

    async def made() -> None:
        async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
            for name in names:
                await admin.create_topic(name, 2)
            for name, topic in (offsets or {}).items():
                await admin.alter_offsets(name, {TopicPartition(topic, 0): 0})

    asyncio.run(made())


@pytest.mark.parametrize("application", ["app", "app-2"])
def test_a_topic_of_which_application(fake: FakeCluster, run: Run, application: str) -> None:
    """Application app can have the store 2-s, and application app-2 the store s."""
    create(fake, AMBIGUOUS)
    before = brokers_have(fake)
    for words in ["--yes"], ["--dry-run"], ["--yes", "--force", "--json"]:
        failed = run(*words, application=application)
        assert failed.exit_code == 1
        assert f"{AMBIGUOUS}: brokers do not tell" in failed.stderr
        assert brokers_have(fake) == before
    assert "ambiguous" in run(application=application).stdout
    shown = json.loads(run("--dry-run", "--json", application=application).stdout)
    assert shown["ambiguous_topics"] == [AMBIGUOUS]
    assert AMBIGUOUS not in shown["deleted_topics"]
    done = run("--yes", "--json", "--internal-topics", AMBIGUOUS, application=application)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["deleted_topics"] == [AMBIGUOUS]
    assert brokers_have(fake)[0] == sorted({*before[0]} - {AMBIGUOUS})


def test_the_other_application_has_no_group_any_more(fake: FakeCluster, run: Run) -> None:
    create(fake, "app-3-s-changelog")
    failed = run("--yes")
    assert failed.exit_code == 1
    assert f"--internal-topics '{','.join(OWN)}'" in failed.stderr
    words = ["--yes", "--internal-topics", "app-3-s-changelog"]
    assert "brokers do not tell" in run(*words[:1], application="app-3").stderr
    assert run(*words, application="app-3").exit_code == 0


def test_offsets_tell_whose_topic_it_is(fake: FakeCluster, run: Run) -> None:
    """Also of a group whose name a topic begins with."""
    names = ["app-view-counts-changelog", "app-by-user-repartition"]
    create(fake, *names, offsets={POSITIONS: names[0], "app": names[1], "app-view": "in"})
    done = json.loads(run("--yes", "--json").stdout)
    assert done["deleted_topics"] == sorted([*OWN, *names])


def test_a_changelog_as_input(fake: FakeCluster, run: Run) -> None:
    """An application can read the changelog of another one."""
    create(fake, AMBIGUOUS, offsets={"app": AMBIGUOUS})
    assert run("--yes").exit_code == 1
    words = ["--yes", "--internal-topics", ",".join(OWN)]
    assert run(*words).exit_code == 0
    assert AMBIGUOUS in brokers_have(fake)[0]


def test_what_is_shown_before_the_question(fake: FakeCluster, run: Run) -> None:
    shown = run()  # without a terminal
    assert shown.exit_code == 2
    assert "give --yes" in shown.stderr
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in shown.stdout.splitlines()]
    assert ["in-0", "6", "2"] in rows
    assert ["in-1", "none", "0"] in rows
    assert ["topic", "app-s-changelog"] in rows
    assert ["group", POSITIONS] in rows
    assert "app: to delete" in shown.stdout
    assert "deleted" not in shown.stdout
    assert len(brokers_have(fake)[0]) == len(OWN) + len(OTHERS)


def test_some_topics_only(fake: FakeCluster, run: Run) -> None:
    words = ("--input-topics", "other-s-changelog", "--internal-topics", "app-s-changelog")
    before = brokers_have(fake)
    for options in (["--yes"], ["--dry-run"]):
        refused = run(*options, *words)
        assert refused.exit_code == 1
        assert "no committed offsets of other-s-changelog: its inputs are in." in refused.stderr
    assert brokers_have(fake) == before
    assert run("--yes", "--force", *words).exit_code == 0
    topics, _, offsets = brokers_have(fake)
    assert topics == sorted([*OTHERS, "app-words-repartition"])
    assert offsets[T0] == 6
    assert offsets[TopicPartition("other-s-changelog", 1)] == 0


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--input-topics", "missing"], 1, "there is no topic missing"),
        (["--internal-topics", "in"], 1, "in: not an internal topic of application 'app'"),
        (["--to", "yesterday"], 2, "--to 'yesterday' is none of"),
        (["--to", "1969-01-01"], 2, "--to '1969-01-01' is none of"),
    ],
)
def test_wrong_options(
    fake: FakeCluster, run: Run, words: list[str], status: int, told: str
) -> None:
    failed = run("--yes", *words)
    assert (failed.exit_code, failed.stdout) == (status, "")
    assert told in failed.stderr


def test_an_application_that_does_not_exist(run: Run) -> None:
    failed = run("--yes", application="ap")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "there is no application 'ap'" in failed.stderr


def test_another_kind_of_group(fake: FakeCluster, run: Run) -> None:
    answer_with(fake, group({A: {}})._replace(protocol="range"))
    failed = run("--yes")
    assert failed.exit_code == 1
    assert "is not a streams application" in failed.stderr


def test_a_group_that_may_be_a_plain_consumer_group(fake: FakeCluster, run: Run) -> None:
    create(fake, offsets={"plain": "in"})
    fake.delete_records("in", 0, 5)
    failed = run("--yes", application="plain")
    assert failed.exit_code == 1
    assert "nothing on the brokers tells that group 'plain' is a streams" in failed.stderr
    done = run("--yes", "--force", "--json", application="plain")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["offsets"][0]["after"] == 5


def test_a_stateless_application_is_known_by_its_transactional_ids(
    fake: FakeCluster, run: Run
) -> None:
    create(fake, offsets={"plain": "in"})

    async def transaction() -> None:
        name = f"plain-{UUID(int=7)}-1"
        async with (
            Producer(fake.bootstrap, dialer=fake, transactional_id=name) as producer,
            producer.transaction(),
        ):
            await producer.send("in", b"")

    asyncio.run(transaction())
    assert run("--yes", application="plain").exit_code == 0


def test_two_operators_at_once(
    fake: FakeCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one has deleted is no failure. Offsets that the other one has set are."""
    delete, others = Admin.delete_topics, [{}, {T0: 7}]

    async def both(admin: Admin, names: Any, **options: Any) -> Any:
        await delete(admin, names, **options)
        await admin.delete_groups([POSITIONS])
        if offsets := others.pop(0):
            await admin.alter_offsets("app", offsets)
        return await delete(admin, names, **options)

    monkeypatch.setattr(Admin, "delete_topics", both)
    done = run("--yes")
    assert done.exit_code == 0, done.stderr
    assert f"deleted: {', '.join([*OWN, POSITIONS])}" in done.stderr
    create(fake, *OWN)
    failed = run("--yes")
    assert failed.exit_code == 1
    assert "committed offset of in-0 was set to 2, and now is 7" in failed.stderr


def test_members(fake: FakeCluster, run: Run) -> None:
    """Without --force they end the command. With it they are removed, and may join again."""
    before = brokers_have(fake)
    answer_with(fake, group({A: dict.fromkeys(TASKS, -2)}))
    failed = run("--yes")
    assert failed.exit_code == 1
    assert "app has 1 members" in failed.stdout
    assert "has members: member-1 on /h. Stop all instances" in failed.stderr
    removed = {"error_code": 0, "members": [{"member_id": "member-1", "error_code": 0}]}
    fake.control(ApiKey.LEAVE_GROUP, removed)
    answer_with(fake, group({A: dict.fromkeys(TASKS, -2)}))
    failed = run("--yes", "--force")
    assert failed.exit_code == 1
    assert "have joined again" in failed.stderr
    assert brokers_have(fake) == before


def test_a_topic_that_is_not_deleted(fake: FakeCluster, run: Run) -> None:
    fake.control(ApiKey.DELETE_TOPICS, 29)
    failed = run("--yes")
    assert failed.exit_code == 1
    assert "is not completely reset" in failed.stderr
    assert "Reset it again" in failed.stderr
    assert run("--yes").exit_code == 0
    assert brokers_have(fake)[0] == OTHERS


def test_the_state_on_this_machine(fake: FakeCluster, run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "other").mkdir(parents=True)
    directory = StateDirectory(state / "app", lambda: 0.0)
    failed = run("--yes", "--state-dir", str(state))
    assert failed.exit_code == 1
    assert "is in use by process" in failed.stderr
    directory.close()
    done = run("--yes", "--json", "--force", "--state-dir", str(state))
    assert json.loads(done.stdout)["state_removed"]
    assert [path.name for path in state.iterdir()] == ["other"]
