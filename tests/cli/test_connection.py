"""How commands connect: every command that talks to a cluster, without a broker."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

import kafkaclient.admin
from kafkaclient.admin import Admin
from kafkaclient.cli import output as run_module
from kafkaclient.cli.admin import OVER_LIMIT
from kafkaclient.cli.app import CLOSED_PIPE, app
from kafkaclient.cli.cluster import NOT_RUNNING
from kafkaclient.cli.connection import ConnectionOptions, started
from kafkaclient.cli.reassign_state import IN_PROGRESS
from kafkaclient.cli.streams import UNBALANCED
from kafkaclient.errors import BootstrapError, ConfigError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.code_blocks import Block, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result

    Run = Callable[..., Result]

LOAD = ("perf-test", "--topic", "t", "--num-records", "1", "--throughput", "-1")
COMMANDS = {
    "topics create": ("t",),
    "topics list": (),
    "topics describe": (),
    "topics delete": ("t", "--yes"),
    "topics add-partitions": ("t", "--partitions", "2"),
    "topics elect-leaders": ("t",),
    "topics offsets": ("t",),
    "topics delete-records": ("t", "--before", "1", "--yes"),
    "configs describe": ("t",),
    "configs alter": ("t", "--add-config", "retention.ms=1"),
    "groups list": (),
    "groups describe": ("g",),
    "groups lag": ("g",),
    "groups reset-offsets": ("g", "--to", "earliest"),
    "groups delete": ("g", "--yes"),
    "groups delete-offsets": ("g", "--topic", "t", "--yes"),
    "groups remove-members": ("g", "--yes"),
    "limits set": ("max.partitions=9",),
    "limits show": (),
    "limits check": (),
    "reassign generate": ("t",),
    "reassign execute": ("--reassignment-json-file", "PLAN", "--yes"),
    "reassign verify": ("--reassignment-json-file", "PLAN"),
    "reassign cancel": ("--all",),
    "reassign list": (),
    "reassign watch": (),
    "throttle show": (),
    "throttle set": ("--replication-quota", "9"),
    "throttle clear": (),
    "streams describe": ("app",),
    "streams reset": ("app", "--yes"),
    "produce": ("t", "x"),
    "consume": ("t", "-e"),
    "cluster describe": (),
    "perf-test": (*LOAD[1:], "--record-size", "1"),
}
"""What each command needs."""


def leaves(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from leaves(command, *names, name)
        else:
            yield " ".join((*names, name)), command


ALL = dict(leaves(typer.main.get_command(app)))
CONNECTING = [name for name, each in ALL.items() if any(p.name == "bootstrap" for p in each.params)]


class NoNetwork:
    """A dialer that nothing may use."""

    dials = 0

    async def dial(self, host: str, port: int, _factory: Callable[[], Any]) -> Any:
        self.dials += 1
        raise AssertionError(f"{host}:{port} was dialed")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    partitions = [{"topic": "t", "partition": 0, "replicas": [0]}]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


@pytest.fixture
def run(plan: Path) -> Run:
    def invoke(name: str, *words: str) -> Result:
        given = [str(plan) if word == "PLAN" else word for word in (*COMMANDS[name], *words)]
        return CliRunner().invoke(app, [*name.split(), *given], env={"COLUMNS": "200"})

    return invoke


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster(1)
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=cluster, rng=Random(1)))
    return cluster


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> NoNetwork:
    dialer = NoNetwork()
    monkeypatch.setattr("kafkaclient.admin.Admin", partial(Admin, dialer=dialer, rng=Random(1)))
    return dialer


def test_every_command_that_connects_is_tested_here() -> None:
    assert sorted(CONNECTING) == sorted([*COMMANDS, "report"])  # tests/cli/test_report.py


@pytest.mark.parametrize("name", CONNECTING)
def test_every_command_takes_the_same_options(name: str) -> None:
    options = {word for p in ALL[name].params for word in p.opts}
    assert {"-b", "--bootstrap", "--bootstrap-server"} <= options
    assert {"--command-config", "--profile", "--timeout", "--json", "-X"} <= options


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    if name in CONNECTING:
        assert "KAFKACLIENT_BOOTSTRAP" in result.output
        assert f"kafkaclient {name}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_host_or_port_is_named_at_once(name: str, run: Run, fake: FakeCluster) -> None:
    wrong = run(name, "-b", "nowhere.example:9092")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "nowhere.example:9092" in wrong.stderr
    assert "Name or service not known" in wrong.stderr
    refused = run(name, "-b", fake.bootstrap.partition(":")[0] + ":1")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "cannot reach bootstrap server" in refused.stderr
    assert "--timeout" in refused.stderr
    assert not fake.requests


@pytest.mark.parametrize("name", ["topics list", "reassign execute", "perf-test"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-b", "localhost"), "give host:port"),
        (("-b", "h:1", "--command-config", "/none"), "cannot read the options in /none"),
        (("-b", "h:1", "--profile", "none"), "there is no profile 'none'"),
        (("-b", "h:1", "--timeout", "0"), "Invalid value for '--timeout'"),
        ((), "KAFKACLIENT_BOOTSTRAP"),
    ],
)
def test_a_wrong_connection_is_refused_before_anything_is_dialed(
    name: str, words: tuple[str, ...], said: str, run: Run, no_network: NoNetwork
) -> None:
    result = run(name, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not no_network.dials


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "b d"),
        ("topics", "create", "t", "--config", "x"),
        ("topics", "create", "t", "--limits-file", "/none"),
        ("topics", "create", "t", "--limits-file", "/none", "--ignore-limits"),
        ("topics", "create", "t", "--replica-assignment", "0", "--partitions", "1"),
        ("topics", "list", "("),
        ("topics", "list", "--pattern", "("),
        ("topics", "describe", "a", "--pattern", "a"),
        ("topics", "delete", "a.*", "--yes"),
        ("topics", "delete", "--yes"),
        ("topics", "elect-leaders"),
        ("topics", "elect-leaders", "t", "--all"),
        ("topics", "add-partitions", "b d", "--partitions", "2"),
        ("topics", "add-partitions", "t", "--partitions", "0"),
        ("configs", "describe"),
        ("configs", "describe", "b d"),
        ("configs", "alter", "t"),
        ("configs", "alter", "t", "--add-config", "x"),
        ("configs", "alter", "t", "--broker", "1", "--delete-config", "x"),
        ("limits", "set", "max.broker.partition=3"),
        ("limits", "set", "max.partitions=x"),
        ("limits", "set", "max.partitions=1", "--limits-file", "/none/file"),
        ("limits", "show", "--limits-file", "/none"),
        ("limits", "check", "--warn-at", "101"),
        ("reassign", "generate"),
        ("reassign", "generate", "t", "--broker-list", "x"),
        ("reassign", "generate", "--topics-to-move-json-file", "/none"),
        ("reassign", "generate", "t", "--out", "/none/plan.json"),
        ("reassign", "execute", "--reassignment-json-file", "/none"),
        ("reassign", "execute", "--reassignment-json-file", __file__),
        ("reassign", "cancel"),
        ("reassign", "watch", "--interval", "0"),
        ("throttle", "set", "--replication-quota", "9", "--broker", "x"),
        ("throttle", "set", "--replication-quota", "9", "--wait"),
        ("throttle", "clear", "--all"),
        ("streams", "describe", "app", "--wait", "-1"),
        (*LOAD, "--record-size", "1", "--command-property", "acks=7"),
        (*LOAD, "--record-size", "1", "--producer", "none"),
        (*LOAD, "--payload-file", "/none"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_refused_before_anything_is_dialed(
    words: tuple[str, ...], no_network: NoNetwork
) -> None:
    result = CliRunner().invoke(app, [*words, "-b", "127.0.0.1:1"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    assert not no_network.dials


def test_a_broker_that_is_silent_is_given_up(run: Run, fake: FakeCluster) -> None:
    fake.stall_broker(0, swallow_dials=True)
    result = run("topics list", "-b", fake.bootstrap, "--timeout", "0.1")
    assert (result.exit_code, result.stdout) == (1, "")
    said = result.stderr.replace("\n", " ")
    assert f"no bootstrap server ({fake.bootstrap}) answered within 0.1 s: " in said


@virtual_time
async def test_silence_is_told_after_ten_seconds(fake: FakeCluster) -> None:
    fake.stall_broker(0, swallow_dials=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(BootstrapError, match="within"):
        async with started({"bootstrap.servers": fake.bootstrap}, None):
            raise AssertionError
    assert 8 <= loop.time() - began <= 10  # the time of one attempt is random


@virtual_time
async def test_with_a_time_limit_a_cluster_may_start_meanwhile(fake: FakeCluster) -> None:
    fake.stop_broker(0)
    options = {"bootstrap.servers": fake.bootstrap}
    with pytest.raises(BootstrapError, match="cannot reach bootstrap server"):
        async with started(options, None):
            raise AssertionError
    asyncio.get_running_loop().call_later(20, fake.start_broker, 0)
    async with started(options, 30.0) as admin:
        assert (await admin.describe_cluster()).cluster_id == "fake-cluster"


def test_the_time_limit_is_that_of_each_request(
    run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []
    real = kafkaclient.admin.Admin

    def admin(options: Any, **arguments: Any) -> Admin:
        limits.append(options.get("default.api.timeout.ms"))
        return real(options, **arguments)

    monkeypatch.setattr("kafkaclient.admin.Admin", admin)
    assert run("topics list", "-b", fake.bootstrap, "--timeout", "2.5").exit_code == 0
    assert run("topics list", "-b", fake.bootstrap).exit_code == 0
    assert limits == ["2500", None]


# --- what overrides what ------------------------------------------------------------------------

PROFILES = """
[here]
bootstrap.servers = ["profile:1", "profile:2"]
command-config = "here.properties"
timeout = 7
acks = "all"
enable.idempotence = true
linger.ms = 3

[empty]
"""
LOGIN = """security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=me
sasl.password=hunter2
"""


@pytest.fixture
def profiles(home: Path) -> Path:
    (home / "here.properties").write_text(LOGIN + "linger.ms=1\nclient.id=file\n")
    path = home / "profiles.toml"
    path.write_text(PROFILES)
    return path


def options(connection: ConnectionOptions, *words: str) -> dict[str, str]:
    return connection.options("me", words)[0]


@pytest.mark.usefixtures("profiles")
def test_a_profile_has_options_a_file_and_a_time_limit() -> None:
    found, timeout_s = ConnectionOptions(profile="here").options("me")
    assert found == {
        "bootstrap.servers": "profile:1,profile:2",
        "client.id": "file",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "linger.ms": "3",
        "acks": "all",
        "enable.idempotence": "true",
    }
    assert timeout_s == 7
    assert ConnectionOptions(profile="here", timeout=2).options("me")[1] == 2


@pytest.mark.usefixtures("profiles")
def test_the_command_line_overrides_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nlinger.ms=9\nkey.serializer=org.example.X\n")
    environment = frozenset({"bootstrap", "profile"})
    name = "bootstrap.servers"
    both = ConnectionOptions("variable:1", None, "here", None, environment)
    assert options(both)[name] == "variable:1"
    assert options(both)["acks"] == "all"
    given = ConnectionOptions("variable:1", None, "here", None, frozenset({"bootstrap"}))
    assert options(given)[name] == "profile:1,profile:2"
    assert options(ConnectionOptions("variable:1", None, "empty", None, frozenset({"bootstrap"})))[
        name
    ] == ("variable:1")
    filed = ConnectionOptions("variable:1", file, "here", None, environment)
    assert options(filed)[name] == "file:1"
    assert options(filed)["linger.ms"] == "9"
    assert "key.serializer" not in options(filed)
    assert options(filed, "bootstrap.servers=word:1")[name] == "word:1"
    last = ConnectionOptions("line:1", file, "here", None, frozenset({"profile"}))
    assert options(last, "bootstrap.servers=word:1")[name] == "line:1"


def test_a_file_for_javas_consumer_serves_every_command(
    fake: FakeCluster, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(
        "group.id=g\nauto.offset.reset=earliest\nkey.deserializer=org.apache.Text\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor\n"
    )
    words = ("-b", fake.bootstrap, "--command-config", str(file))
    assert run("topics list", *words).exit_code == 0
    file.write_text("group.idd=g\n")
    wrong = run("topics list", *words)
    assert wrong.exit_code == 2
    assert f"error: {file}: unknown option group.idd: did you mean group.id?" in wrong.stderr


def test_secrets_come_from_environment_variables(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    monkeypatch.setenv("CLUSTER", "h:1")
    file = home / "java.properties"
    file.write_text(
        "config.providers=env\nconfig.providers.env.class=org.apache.kafka.EnvVarConfigProvider\n"
        + LOGIN.replace("hunter2", "${env:PASSWORD}")
    )
    text = '[x]\nbootstrap.servers = "${env:CLUSTER}"\ncommand-config = "java.properties"\n'
    (home / "profiles.toml").write_text(text)
    listed = CliRunner().invoke(app, ["profiles"], env={"COLUMNS": "200"})
    assert (listed.exit_code, "${env:CLUSTER}" in listed.stdout) == (0, True)
    given = ConnectionOptions(profile="x", words=("client.id=a-${env:CLUSTER}-${env:CLUSTER}",))
    found = options(given)
    assert (found["bootstrap.servers"], found["sasl.password"]) == ("h:1", "hunter2")
    assert found["client.id"] == "a-h:1-h:1"
    assert not any(name.startswith("config") for name in found)
    assert "hunter2" not in repr(ConnectionOptions(words=("sasl.password=hunter2",)))
    monkeypatch.delenv("CLUSTER")
    unset = run("topics list", "--profile", "x")
    assert unset.exit_code == 2
    assert unset.stderr == (
        f"error: {home / 'profiles.toml'}, line 1: profile 'x': bootstrap.servers: the environment "
        "variable CLUSTER is not set\n"
    )
    assert options(replace(given, bootstrap="h:2", words=()))["bootstrap.servers"] == "h:2"
    monkeypatch.delenv("PASSWORD")
    unset = run("topics list", "--command-config", str(file))
    assert unset.stderr == (
        f"error: {file}: sasl.password: the environment variable PASSWORD is not set\n"
    )
    unset = run("topics list", "-X", "client.id=${env:CLUSTER}")
    assert unset.stderr == "error: -X client.id: the environment variable CLUSTER is not set\n"
    file.write_text("config.providers=file\nsasl.password=${file:x:y}\n")
    assert "only env is known" in run("topics list", "--profile", "x").stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("linger.ms=${env:VALUE}", "linger.ms=[hidden] is not accepted: give a number"),
        ("group.idd=${env:VALUE}", "unknown option group.idd: did you mean group.id?"),
        ("client.id=${env:VALUE", "client.id: a variable is given as ${env:NAME}"),
        ("client.id=${env:}", "client.id: a variable is given as ${env:NAME}"),
        ("client.id=${env:A${env:VALUE}}", "client.id: a variable is given as ${env:NAME}"),
    ],
)
def test_an_option_with_a_wrong_variable_is_named_without_the_value(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("VALUE", "hunter2")
    file = home / "java.properties"
    file.write_text(f"bootstrap.servers=h:1\n{line}\n")
    wrong = run("topics list", "--command-config", str(file))
    assert wrong.exit_code == 2
    assert f"error: {file}: {said}" in wrong.stderr
    assert "hunter2" not in wrong.stderr


@pytest.mark.usefixtures("profiles")
def test_a_profile_without_brokers_is_not_enough() -> None:
    with pytest.raises(ConfigError, match="no brokers to connect to"):
        ConnectionOptions(profile="empty").options("me")


def test_the_environment_names_brokers_and_profile(
    run: Run, fake: FakeCluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "profiles.toml").write_text(f'[dev]\nbootstrap.servers = "{fake.bootstrap}"\n')
    monkeypatch.setenv("KAFKACLIENT_PROFILE", "dev")
    assert run("topics list").exit_code == 0
    monkeypatch.setenv("KAFKACLIENT_BOOTSTRAP", "nowhere.example:1")
    assert "nowhere.example:1" in run("topics list").stderr
    assert run("topics list", "--profile", "dev").exit_code == 0
    monkeypatch.delenv("KAFKACLIENT_PROFILE")
    assert run("topics list", "-b", fake.bootstrap).exit_code == 0


# --- the file of profiles ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]\nb = \n", "line 2"),
        ("[a\n", "line 1"),
        ("a = 1\n", "line 1: a profile is a table, as in [a]"),
        ("[a]\n\n[x]\ntimeout = 0\n", "line 3: timeout of profile 'x' is a number of seconds"),
        ("[x]\ntimeout = true\n", "line 1: timeout of profile 'x'"),
        ("[x]\ncommand-config = 1\n", "line 1: command-config of profile 'x' is the name"),
        ("\n[x]\nacks = [1]\n", "line 2: acks of profile 'x' is a text"),
        ("[x]\nclient.ids = 'me'\n", "line 1: profile 'x': unknown option client.ids: did you"),
        ("[x]\nlinger.ms = 'soon'\n", "line 1: profile 'x': linger.ms='soon' is not accepted"),
        ("[x]\nsasl.mechanism = 'PLAIN'\nsecurity.protocol = 'SASL_SSL'\n", "with profile 'x' of "),
        ("[x]\ncommand-config = 'profiles.toml'\n", "profiles.toml: unknown option [x]"),
        ("[prod]\n", "there is no profile 'x'"),
        ("[y]\n[xx]\n", "did you mean xx?"),
    ],
)
def test_a_bad_file_is_told_with_the_line(
    text: str, said: str, run: Run, no_network: NoNetwork, home: Path
) -> None:
    (home / "profiles.toml").write_text(text)
    result = run("topics list", "--profile", "x", "-b", "h:1")
    assert result.exit_code == 2
    assert str(home / "profiles.toml") in result.stderr.replace("\n", "")
    assert said in result.stderr.replace("\n", " ")
    assert not no_network.dials


def test_a_bad_option_is_told_when_profiles_are_listed(home: Path) -> None:
    (home / "profiles.toml").write_text("[a]\n[x]\nclient.ids = 'me'\n")
    listed = CliRunner().invoke(app, ["profiles"], env={"COLUMNS": "400"})
    assert (listed.exit_code, listed.stdout) == (2, "")
    assert "line 2: profile 'x': unknown option client.ids" in listed.stderr


def test_profiles_are_listed_without_secrets(profiles: Path) -> None:
    told = json.loads(CliRunner().invoke(app, ["profiles", "--json"]).stdout)
    assert told["file"] == str(profiles)
    here, empty = told["profiles"]
    assert here == {
        "profile": "here",
        "bootstrap": "profile:1,profile:2",
        "security": None,
        "login": None,
        "command_config": str(profiles.parent / "here.properties"),
        "timeout_s": 7,
    }
    assert empty["profile"] == "empty"
    profiles.write_text('[p]\nsasl.jaas.config = "hunter2"\nsasl.mechanism = "PLAIN"\n')
    table = CliRunner().invoke(app, ["profiles"], env={"KAFKACLIENT_PROFILE": "p"}).output
    assert "p (in use)" in table
    assert "PLAIN" in table
    assert "hunter2" not in table


def test_there_need_not_be_a_file_of_profiles(home: Path) -> None:
    result = CliRunner().invoke(app, ["profiles"])
    assert result.exit_code == 0
    assert "there are no profiles in" in result.output
    assert json.loads(CliRunner().invoke(app, ["profiles", "--json"]).stdout)["profiles"] == []
    (home / "profiles.toml").write_text("[")
    assert CliRunner().invoke(app, ["profiles"]).exit_code == 2


# --- completion, versions -----------------------------------------------------------------------


def completed(shell: str, words: str, *, position: int = 1) -> str:
    variables = {
        "_ROOT_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return CliRunner().invoke(app, [], prog_name="root", env=variables).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.usefixtures("profiles")
def test_shells_complete_commands_options_and_profiles(shell: str) -> None:
    assert "create" in completed(shell, "root topics cr", position=2)
    assert "perf-test" in completed(shell, "root pe")
    assert "--bootstrap-server" in completed(shell, "root topics list --boot", position=3)
    assert "here" in completed(shell, "root topics list --profile ", position=4)


def test_the_versions() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    first, python, codec = result.stdout.splitlines()
    assert first.startswith("kafkaclient ")
    assert python.partition(" ")[2].count(".") == 2
    assert codec.startswith("kafka-python 3.")


# --- the reasons that sockets give ---------------------------------------------------------------


def test_the_reason_is_the_systems_word_whatever_the_event_loop() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"  # nobody listens
        result = CliRunner().invoke(app, ["topics", "list", "-b", address])
    assert result.exit_code == 1
    said = result.stderr.replace("\n", "")
    assert f"cannot reach bootstrap server {address}: connection refused. Check" in said


# --- the page about all this ---------------------------------------------------------------------

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "command-line.md"


def test_the_page_has_every_exit_status() -> None:
    statuses = {
        *(0, run_module.FAILED, run_module.USAGE, run_module.INTERRUPTED, run_module.TERMINATED),
        *(OVER_LIMIT, UNBALANCED, IN_PROGRESS, NOT_RUNNING, CLOSED_PIPE),
    }
    table = PAGE.read_text().partition("| exit status | meaning |")[2]
    assert {int(row) for row in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == statuses


@runs("docs/how-to/command-line.md", "toml")
def test_the_profiles_of_the_page_can_be_used(home: Path, block: Block) -> None:
    (home / "profiles.toml").write_text(block.text())
    (home / "prod.properties").write_text("security.protocol=SSL\n")
    assert options(ConnectionOptions(profile="local"))["bootstrap.servers"] == "localhost:9092"
    found, timeout_s = ConnectionOptions(profile="prod").options("me")
    assert found == {
        "bootstrap.servers": "broker1:9093,broker2:9093",
        "client.id": "ops-laptop",
        "security.protocol": "SSL",
    }
    assert timeout_s == 20
