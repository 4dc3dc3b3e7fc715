"""``kafkaclient reassign`` and ``throttle`` on the fake cluster."""

from __future__ import annotations

import errno
import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from kafkaclient.admin import Admin, Lifted, ReassignmentPlan
from kafkaclient.admin.reassign.throttled_reassignment import ReplicationQuotas
from kafkaclient.cli.app import app
from kafkaclient.errors import RequestTimedOutError
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from kafkaclient.testing.fake import Request

    Run = Callable[..., Result]


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(4)
    cluster.create_topic("foo", assignments=[(0, 1), (1, 2)])
    return cluster


@pytest.fixture
def run(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=fake, rng=Random(1)))

    def invoke(*words: object) -> Result:
        given = [*map(str, words), "--bootstrap-server", fake.bootstrap]
        return CliRunner().invoke(app, given)

    return invoke


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """foo-0 from 0,1 to 0,3."""
    path = tmp_path / "plan.json"
    partitions = [{"topic": "foo", "partition": 0, "replicas": [0, 3]}]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


EXECUTE = ("reassign", "execute", "--measure", 0, "--yes", "--reassignment-json-file")


def rates(fake: FakeCluster) -> set[str | None]:
    key = "follower.replication.throttled.rate"
    return {own.get(key) for own in inspect(fake).broker_configs.values()} - {None}


def finish_when_watched(fake: FakeCluster) -> None:
    """The moves end with the third look at their sizes."""
    looks = 0

    def look(_request) -> None:
        nonlocal looks
        looks += 1
        if looks > 6:
            fake.finish_reassignments()

    fake.control(ApiKey.DESCRIBE_LOG_DIRS, look)


def test_a_plan_from_generation_to_the_end(run: Run, fake: FakeCluster, tmp_path: Path) -> None:
    out, back = tmp_path / "plan.json", tmp_path / "back.json"
    words = ("reassign", "generate", "--measure", 0, "--out", out)
    made = run(*words, "foo", "--broker-list", "2,3", "--throttle", 5_000_000)
    assert made.exit_code == 0, made.stderr
    assert "Current partition replica assignment" in made.stdout
    assert '"replicas":[0,1]' in made.stdout
    assert "MoveRatio" in made.stdout
    assert "above 0 B/s" in made.stdout
    finish_when_watched(fake)
    done = run(*EXECUTE, out, "--throttle", 5_000_000, "--rollback-file", back)
    assert done.exit_code == 0, done.stderr
    assert "Save this to use as the --reassignment-json-file option" in done.stdout
    assert "Successfully started partition reassignments for foo-0,foo-1" in done.stderr
    assert "2 of 2 partitions" in done.stderr
    assert json.loads(back.read_text())["partitions"][0]["replicas"] == [0, 1]
    assert rates(fake) == set()
    assert {node for p in inspect(fake).topics["foo"].partitions for node in p.replicas} == {2, 3}
    told = run("reassign", "verify", "--reassignment-json-file", out)
    assert told.exit_code == 0
    assert "Reassignment of partition foo-1 is completed." in told.stdout


def test_begun_watched_verified_cancelled(run: Run, fake: FakeCluster, plan: Path) -> None:
    begun = run(*EXECUTE, plan, "--replication-quota", 1_000_000, "--no-wait")
    assert begun.exit_code == 0, begun.stderr
    assert "reassign verify" in begun.stderr
    listed = run("reassign", "list")
    assert "foo-0: replicas: 0,3,1. adding: 3. removing: 1." in listed.stdout
    assert json.loads(run("reassign", "list", "--json").stdout)[0]["adding"] == [3]
    look = json.loads(run("reassign", "watch", "--once", "--json", "--interval", 0.1).stdout)
    assert (look["finished"], look["brokers"][0]["quota"]) == (False, 1_000_000)
    assert "0 of 1 partitions" in run("reassign", "watch", "--once", "--interval", 0.1).stdout
    under = run("reassign", "verify", "--reassignment-json-file", plan)
    assert under.exit_code == 4
    assert "still in progress" in under.stdout
    again = run(*EXECUTE, plan)
    assert again.exit_code == 1
    assert "--additional" in again.stderr
    changed = run("throttle", "set", "--replication-quota", 9)
    assert "broker 3: 9 B/s" in changed.stderr
    assert rates(fake) == {"9"}
    shown = run("throttle", "show")
    assert "kafkaclient" in shown.stdout
    assert "0:3" in shown.stdout
    unasked = run("reassign", "cancel", "--plan", plan)
    assert unasked.exit_code == 2
    assert "1 partitions? Nothing was done" in unasked.stderr
    cancelled = run("reassign", "cancel", "--reassignment-json-file", plan, "--yes")
    assert "Successfully cancelled partition reassignments for: foo-0" in cancelled.stdout
    assert rates(fake) == set()
    none = run("reassign", "cancel", "--all", "--yes")
    assert "None of the specified partition reassignments are active." in none.stdout
    different = run("reassign", "verify", "--reassignment-json-file", plan, "--json")
    assert different.exit_code == 1
    assert json.loads(different.stdout)["partitions"][0]["state"] == "different"
    assert run("reassign", "list").stdout == "No partition reassignments found.\n"
    assert run("reassign", "watch").stdout == "No partition reassignments found.\n"


def test_quotas_that_are_not_safe(run: Run, fake: FakeCluster, plan: Path) -> None:
    nothing = run(*EXECUTE, plan, "--throttle", 0)
    assert nothing.exit_code == 2
    assert "would never end" in nothing.stderr
    assert "--allow-unsafe-quota" in nothing.stderr
    above = ("--throttle", 20_000_000, "--network-bandwidth", 10_000_000)
    much = run(*EXECUTE, plan, *above)
    assert much.exit_code == 2
    assert "below 10.0 MB/s" in much.stderr
    assert rates(fake) == set()
    allowed = run(*EXECUTE, plan, *above, "--allow-unsafe-quota", "--no-wait", "--json")
    assert allowed.exit_code == 0
    assert "warning" in allowed.stderr
    assert json.loads(allowed.stdout)["started"] == ["foo-0"]
    assert run("throttle", "clear").exit_code == 0
    assert rates(fake) == {"20000000"}
    assert run("throttle", "clear", "--now").exit_code == 2
    cleared = run("throttle", "clear", "--now", "--yes", "--json")
    assert json.loads(cleared.stdout)["brokers"] == [0, 1, 3]
    assert rates(fake) == set()
    assert "there was nothing to remove" in run("throttle", "clear").stderr
    assert run("throttle", "show").stdout == "nothing is throttled\n"


def test_a_network_with_which_no_quota_is_safe(run: Run, plan: Path) -> None:
    words = ("reassign", "generate", "--measure", 0, "foo", "--network-bandwidth", 1)
    told = run(*words)
    assert told.exit_code == 0
    assert "below" not in told.stdout
    assert "no quota is safe" in told.stderr
    assert "at least 2 bytes per second" in told.stderr
    refused = run(*EXECUTE, plan, "--throttle", 5, "--network-bandwidth", 1)
    assert refused.exit_code == 2
    assert "at least 2 bytes per second" in refused.stderr


@pytest.mark.parametrize("plan_text", ['{"version":1,"partitions":[]}', "{}"])
@pytest.mark.parametrize("command", ["execute", "verify", "cancel"])
def test_an_empty_plan(run: Run, tmp_path: Path, command: str, plan_text: str) -> None:
    path = tmp_path / "empty.json"
    path.write_text(plan_text)
    refused = run("reassign", command, "--reassignment-json-file", path)
    assert refused.exit_code == 2
    assert "list cannot be empty" in refused.stderr


def test_files_that_cannot_be_written(run: Run, fake: FakeCluster, plan: Path) -> None:
    generate = ("reassign", "generate", "foo", "--measure", 0, "--out")
    execute = (*EXECUTE, plan, "--throttle", 5, "--rollback-file")
    for command in (generate, execute):
        refused = run(*command, "/nowhere/x")
        assert refused.exit_code == 2
        assert "there is no directory /nowhere" in " ".join(refused.stderr.split())
    assert not fake.requests
    for command in (generate, execute):
        refused = run(*command, "/dev/full")
        assert refused.exit_code == 1
        assert "error: /dev/full: No space left on device\n" in refused.stderr
    assert not fake.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert rates(fake) == set()


def test_nobody_to_confirm(run: Run, fake: FakeCluster, plan: Path) -> None:
    words = [word for word in EXECUTE if word != "--yes"]
    asked = run(*words, plan, "--throttle", 1_000_000)
    assert asked.exit_code == 2
    assert "Reassign 1 partitions" in asked.stderr
    assert not fake.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)


def test_what_fails_is_told_and_the_rest_done(run: Run, fake: FakeCluster, tmp_path: Path) -> None:
    fake.stop_broker(3)
    path = tmp_path / "plan.json"
    partitions = [
        {"topic": "foo", "partition": 0, "replicas": [0, 3]},
        {"topic": "foo", "partition": 1, "replicas": [1, 0]},
    ]
    path.write_text(json.dumps({"partitions": partitions}))
    refused = run(*EXECUTE, path)
    assert refused.exit_code == 1
    assert "Unknown broker id 3" in refused.stderr
    finish_when_watched(fake)
    partly = run(*EXECUTE, path, "--skip-dead", "--json")
    assert partly.exit_code == 1
    told = json.loads(partly.stdout)
    assert (told["started"], list(told["failed"])) == (["foo-1"], ["foo-0"])
    assert "broker 3 is down" in partly.stderr


def test_brokers_that_do_not_tell_what_they_have(run: Run, fake: FakeCluster) -> None:
    control = fake.control(ApiKey.DESCRIBE_LOG_DIRS, 56, keep=True)
    words = ("reassign", "generate", "foo", "--measure", 0)
    told = run(*words)
    assert told.exit_code == 0
    assert "the estimate does not include broker 1" in told.stderr
    assert "describing its log directory /fake/logs: KAFKA_STORAGE_ERROR (56)" in told.stderr
    assert json.loads(run(*words, "--json").stdout)["silent"].keys() == {"0", "1", "2", "3"}
    control.remove()
    denied = fake.control(ApiKey.DESCRIBE_LOG_DIRS, {"error_code": 31, "results": []}, keep=True)
    assert "--operation Describe --cluster allows it" in run(*words).stderr
    denied.remove()
    denied = fake.control(ApiKey.DESCRIBE_LOG_DIRS, {"results": []}, keep=True)
    assert "it lists no log directory; Describe on the cluster may be missing" in run(*words).stderr
    denied.remove()


def test_throttles_of_others(run: Run, fake: FakeCluster, plan: Path) -> None:
    made = run(
        "configs", "alter", "--broker", 2, "--add-config", "leader.replication.throttled.rate=7"
    )
    assert made.exit_code == 0
    fake.finish_reassignments()
    told = run("reassign", "verify", "--reassignment-json-file", plan)
    assert "kafkaclient did not set: broker 2; --all-throttles" in told.stderr
    assert (
        "throttles of brokers 2 are removed"
        in run(*("reassign", "verify", "--reassignment-json-file", plan), "--all-throttles").stderr
    )
    assert run("throttle", "clear", "--all").exit_code == 2
    assert run("throttle", "clear", "--all", "--yes").exit_code == 0


def test_a_bootstrapping_broker(run: Run, fake: FakeCluster) -> None:
    fake.set_isr("foo", 1, [1])
    made = run("throttle", "set", "--broker", 2, "--replication-quota", 500)
    assert "broker 2: 500 B/s" in made.stderr
    fake.set_isr("foo", 1, [1, 2])
    waited = run("throttle", "set", "--broker", 2, "--replication-quota", 500, "--wait")
    assert waited.exit_code == 0
    assert "throttles of brokers 1,2 are removed" in waited.stderr
    nobody = run("throttle", "set", "--replication-quota", 500)
    assert nobody.exit_code == 1
    assert "no broker has a throttle of kafkaclient" in nobody.stderr


def test_what_is_printed_as_json_after_a_failure(run: Run, fake: FakeCluster, plan: Path) -> None:
    """The rollback plan is there as soon as anything may have changed."""
    refused = run(*EXECUTE, plan, "--json", "--throttle", 0)
    assert (refused.exit_code, refused.stdout) == (2, "")
    finish_when_watched(fake)
    stays = {"error_code": 44, "error_message": "policy", "resource_type": 4, "resource_name": "3"}

    def refuse_removal(request: Request) -> dict[str, Any] | None:
        changes = [c for r in request.message.resources for c in r.configs]
        removes = any(c.config_operation == 1 and c.name.endswith("rate") for c in changes)
        on_3 = request.message.resources[0].resource_name == "3"
        return {"responses": [stays]} if removes and on_3 else None

    control = fake.control(ApiKey.INCREMENTAL_ALTER_CONFIGS, refuse_removal, keep=True)
    left = run(*EXECUTE, plan, "--json", "--throttle", 5_000_000)
    assert left.exit_code == 1
    told = json.loads(left.stdout)
    assert (told["done"], told["started"]) == (False, ["foo-0"])
    assert "POLICY_VIOLATION" in told["failed"]["the throttle of broker 3"]
    assert "Save this" in left.stderr
    assert told["rollback"]["partitions"][0]["replicas"] == [0, 1]
    assert "throttles were not removed (broker 3)" in told["error"]
    control.remove()


def test_nothing_moves_if_the_json_cannot_be_printed(
    run: Run, fake: FakeCluster, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, err: bool = False, **__: object) -> None:
        if not err:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("typer.echo", full)
    refused = run(*EXECUTE, plan, "--json", "--throttle", 5_000_000)
    assert (refused.exit_code, rates(fake)) == (1, set())
    assert not inspect(fake).topics["foo"].partitions[0].moving_to


CLEAR = "kafkaclient.admin.reassign.{}.clear_throttles"


async def unanswered(*_: object, **__: object) -> None:
    raise RequestTimedOutError("no answer")


async def nothing_cleared(*_: object, **__: object) -> Lifted:
    return Lifted(failures={"broker 3": RequestTimedOutError("no answer")})


@pytest.mark.parametrize(
    ("clear", "failed"),
    [(unanswered, {"the cluster": "no answer"}), (nothing_cleared, {"broker 3": "no answer"})],
)
def test_cancel_tells_throttles_that_stay(
    run: Run, plan: Path, monkeypatch: pytest.MonkeyPatch, clear: object, failed: dict[str, str]
) -> None:
    assert run(*EXECUTE, plan, "--throttle", 5_000_000, "--no-wait").exit_code == 0
    monkeypatch.setattr(CLEAR.format("reassigner"), clear)
    cancelled = run("reassign", "cancel", "--all", "--yes", "--json")
    assert cancelled.exit_code == 1
    told = json.loads(cancelled.stdout)
    assert (told["cancelled"], told["failed"]) == (["foo-0"], {})
    assert told["throttles"]["failed"] == failed


def test_cancel_tells_that_the_order_may_have_changed(
    run: Run, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.create_topic("two", assignments=[(0, 1), (0, 1)])
    plan = {TopicPartition("two", 0): (1, 3), TopicPartition("two", 1): (3, 2)}
    file = tmp_path / "plan.json"
    file.write_text(ReassignmentPlan(plan).to_json())
    assert run(*EXECUTE, file, "--no-wait").exit_code == 0
    cancelled = run("reassign", "cancel", "--plan", file, "--yes")
    assert "note: the replicas of two-0 may be in another order" in cancelled.stderr
    assert run(*EXECUTE, file, "--no-wait").exit_code == 0
    told = json.loads(run("reassign", "cancel", "--all", "--yes", "--json").stdout)
    assert told["may_be_reordered"] == ["two-0"]


def test_set_tells_throttles_that_stay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("throttle", "set", "--broker", 2, "--replication-quota", 500, "--wait")
    monkeypatch.setattr(CLEAR.format("throttled_reassignment"), nothing_cleared)
    waited = run(*words)
    assert waited.exit_code == 1
    assert "the throttle of broker 3 could not be removed: no answer" in waited.stderr
    waited = run(*words, "--json")
    assert waited.exit_code == 1
    told = json.loads(waited.stdout)
    assert (told["brokers"], told["rate"], told["failed"]) == ([2], 500, {})
    assert told["throttles"]["failed"] == {"broker 3": "no answer"}
    monkeypatch.setattr(ReplicationQuotas, "behind", unanswered)
    ended = run(*words, "--json")
    assert ended.exit_code == 1
    told = json.loads(ended.stdout)
    assert (told["brokers"], told["error"]) == ([2], "no answer")
    assert "the throttles stay" in ended.stderr


def test_parts_that_are_left_out(run: Run, fake: FakeCluster, tmp_path: Path) -> None:
    fake.stop_broker(3)
    path = tmp_path / "plan.json"
    partitions = [
        {"topic": "foo", "partition": 0, "replicas": [0, 3]},
        {"topic": "foo", "partition": 1, "replicas": [1, 0]},
    ]
    path.write_text(json.dumps({"partitions": partitions}))
    begun = run(*EXECUTE, path, "--skip-dead", "--no-wait", "--json")
    assert begun.exit_code == 1
    told = json.loads(begun.stdout)
    assert (told["done"], told["started"], list(told["failed"])) == (False, ["foo-1"], ["foo-0"])
    assert "the moves continue" in begun.stderr


def test_moves_that_leave_fewer_in_sync(run: Run, fake: FakeCluster, tmp_path: Path) -> None:
    fake.set_isr("foo", 0, [0])
    path = tmp_path / "plan.json"
    path.write_text('{"partitions":[{"topic":"foo","partition":0,"replicas":[1]}]}')
    refused = run(*EXECUTE, path)
    assert refused.exit_code == 1
    assert "--allow-fewer-in-sync" in refused.stderr
    assert not fake.requests_of(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    told = json.loads(run(*EXECUTE, path, "--allow-fewer-in-sync", "--no-wait", "--json").stdout)
    assert told["started"] == ["foo-0"]


def test_a_rollback_file_is_not_overwritten(run: Run, plan: Path, tmp_path: Path) -> None:
    """A second try would replace the original replicas by those that the first try has left."""
    back = tmp_path / "back.json"
    assert run(*EXECUTE, plan, "--no-wait", "--rollback-file", back).exit_code == 0
    before = back.read_text()
    again = run(*EXECUTE, plan, "--additional", "--no-wait", "--rollback-file", back)
    assert again.exit_code == 2
    assert "back.json exists" in again.stderr
    assert back.read_text() == before


def test_brokers_whose_throttles_are_not_known(run: Run, fake: FakeCluster) -> None:
    assert run("throttle", "show").exit_code == 0
    of_2 = {"configs": [], "resource_type": 4, "resource_name": "2"}

    def refuse(request: Request) -> dict[str, Any] | None:
        named = [each.resource_name for each in request.message.resources]
        return {"results": [{"error_code": 31, **of_2}]} if named == ["2"] else None

    fake.control(ApiKey.DESCRIBE_CONFIGS, refuse, keep=True)
    unknown = run("throttle", "show", "--json")
    assert unknown.exit_code == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in json.loads(unknown.stdout)["failed"]["2"]


@pytest.mark.parametrize(
    "words",
    [
        ("reassign", "generate"),
        ("reassign", "generate", "foo", "--broker-list", "1,1"),
        ("reassign", "cancel"),
        ("reassign", "verify", "--reassignment-json-file", "/nowhere.json"),
        ("throttle", "set", "--replication-quota", "5", "--wait"),
    ],
)
def test_wrong_use(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2
