"""The options that several commands share, and how commands connect to a cluster."""

from __future__ import annotations

import inspect
import logging
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args

import typer

import kafkaclient.admin
from kafkaclient.cli.output import shown_meanwhile
from kafkaclient.cli.profile_file import (
    BOOTSTRAP,
    REGISTRY,
    from_environment,
    is_left_out,
    options_in,
    pairs,
    profile_named,
    profile_names,
    profiles_file,
)
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import AdminConfig
from kafkaclient.errors import BootstrapError, BrokerConnectionError, ConfigError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from kafkaclient.admin import Admin
    from kafkaclient.errors import KafkaError


F = TypeVar("F", bound="Callable[..., Any]")

BOOTSTRAP_VARIABLE = "KAFKACLIENT_BOOTSTRAP"
PROFILE_VARIABLE = "KAFKACLIENT_PROFILE"

_CONNECTION = "Connection"

_Layer: TypeAlias = "tuple[str, Mapping[str, str]]"
"""Options that are given in one place, behind the beginning of error messages about them."""


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Brokers to connect to first, joined by commas.",
        rich_help_panel=_CONNECTION,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Properties file with client options such as security.protocol.",
        rich_help_panel=_CONNECTION,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        help="A connection of your profiles; `kafkaclient profiles` lists them.",
        autocompletion=profile_names,
        rich_help_panel=_CONNECTION,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        help="Seconds to wait for the cluster: to connect, and for each request with its retries. "
        "[default: 10 and 60]",
        rich_help_panel=_CONNECTION,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="An option of the client; may be repeated. ${env:NAME} is a variable's value.",
        rich_help_panel=_CONNECTION,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "--force", "-y", help="Do not ask for confirmation.")]
LimitsFile = Annotated[Path | None, "File of partition limits, in place of those in the cluster."]
IgnoreLimits = Annotated[bool, "Ignore the partition limits."]
ValidateOnly = Annotated[bool, "Check whether the request is valid; change nothing."]


def described(command: F) -> F:
    """Let typer read each ``name: Annotated[TYPE, "help text"]`` as an option of that name.

    The option of a bool has no ``--no-`` form. The type of a number with a minimum is shown as N:
    typer's words leave too little room for the names of options on a terminal with 80 columns.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [_option(parameter) for parameter in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def given_of(flags: Mapping[str, object]) -> list[str]:
    """Those of the flags that are given: whose values are neither None nor False. Raises
    ConfigError if there are several."""
    given = [flag for flag, value in flags.items() if value is not None and value is not False]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: give one of them")
    return given


def output_file(file: Path | None) -> Path | None:
    """The callback of an option for an output file: refuses a file whose directory is missing."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(
            f"there is no directory {file.parent}; create it, or name another file"
        )
    return file


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *metadata = get_args(parameter.annotation) or (None,)
    option: Any = metadata[0] if metadata else None
    if not isinstance(option, str):
        if getattr(option, "min", None) is not None and option.metavar is None:
            option.metavar = "N"
        return parameter
    names = [f"--{parameter.name.rstrip('_').replace('_', '-')}"] if kind is bool else []
    annotation: Any = Annotated[kind, typer.Option(*names, help=option)]
    return parameter.replace(annotation=annotation)


_CONNECT_S = 10.0  # the limit without --timeout: a wrong address is more likely than a slow cluster
_START_TIMEOUTS = ("default.api.timeout.ms", "bootstrap.connect.timeout.ms")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options for the connection, as given. :meth:`options` puts them together."""

    bootstrap: str | None = None
    command_config: Path | None = None
    profile: str | None = None
    timeout: float | None = None
    from_environment: frozenset[str] = frozenset()
    """Which of ``bootstrap`` and ``profile`` are from environment variables."""
    words: tuple[str, ...] = field(default=(), repr=False)
    """``NAME=VALUE`` of ``-X``."""

    def options(
        self, client_id: str, words: Iterable[str] | None = None
    ) -> tuple[dict[str, str], float | None]:
        """As :meth:`with_registry`, without the properties of a schema registry."""
        options, timeout_s, _ = self.with_registry(client_id, words)
        return options, timeout_s

    def with_registry(
        self, client_id: str, words: Iterable[str] | None = None
    ) -> tuple[dict[str, str], float | None, dict[str, str]]:
        """A client's options, the time limit in seconds if one is given, and the properties of a
        schema registry's client: what begins with schema.registry. The files are read once: the
        shell's ``<(...)`` can be read no second time.

        What is given on the command line overrides the environment. ``--bootstrap-server``
        overrides ``-X`` and ``words`` (``--command-property``), they override ``--command-config``,
        and the file overrides the profile. Raises ConfigError if none of them names the brokers.
        """
        layers, timeout_s = self._layers(words)
        config = {"client.id": client_id} | _merged(layers)
        if BOOTSTRAP not in config:
            raise ConfigError(
                "no brokers to connect to: give -b HOST:PORT (--bootstrap-server), --profile NAME, "
                "or bootstrap.servers in --command-config; or set KAFKACLIENT_BOOTSTRAP"
            )
        of_registry = {name for name in config if name.startswith(REGISTRY)}
        options = {name: text for name, text in config.items() if not is_left_out(name)}
        if self.profile is not None:
            try:
                AdminConfig.build(_of_admin(options))
            except ConfigError as error:
                where = f"with profile {self.profile!r} of {profiles_file()}"
                raise ConfigError(f"{where}: {error}") from error
        return (
            options,
            timeout_s,
            {name.removeprefix(REGISTRY): config[name] for name in of_registry},
        )

    def _layers(self, words: Iterable[str] | None) -> tuple[list[_Layer], float | None]:
        """Later ones override."""
        file: list[_Layer] = []
        if self.command_config is not None:
            file = [(f"{self.command_config}: ", options_in(self.command_config))]
        where = BOOTSTRAP_VARIABLE if "bootstrap" in self.from_environment else "--bootstrap-server"
        servers = {} if self.bootstrap is None else {BOOTSTRAP: self.bootstrap}
        named: list[_Layer] = [(f"{where}: ", servers)]
        profile: list[_Layer] = []
        timeout_s = self.timeout
        if self.profile is not None:
            found = profile_named(self.profile)
            if found.file is not None:
                profile.append((f"{found.file}: ", options_in(found.file)))
            profile.append((found.prefix, found.options))
            timeout_s = found.timeout_s if timeout_s is None else timeout_s
        last = [] if "bootstrap" in self.from_environment else named
        first = profile + named if "profile" in self.from_environment else named + profile
        named_ones: list[_Layer] = [
            ("--command-property ", pairs(words, "--command-property")),
            ("-X ", pairs(self.words, "-X")),
        ]
        return [*first, *file, *named_ones, *last], timeout_s

    @asynccontextmanager
    async def admin(self, **arguments: Any) -> AsyncIterator[Admin]:
        """A started client; ``arguments`` are of :class:`~kafkaclient.admin.Admin`."""
        options, timeout_s = self.options("kafkaclient-admin")
        async with started(options_of(AdminConfig, options), timeout_s, **arguments) as admin:
            yield admin


def _merged(layers: Iterable[_Layer]) -> dict[str, str]:
    """All options. Variables are looked up in those that no later layer overrides."""
    given: dict[str, tuple[str, str]] = {}
    for where, options in layers:
        given |= {name: (where, text) for name, text in options.items()}
    config: dict[str, str] = {}
    for where in dict.fromkeys(where for where, _ in given.values()):
        own = {name: text for name, (place, text) in given.items() if place == where}
        config |= from_environment(own, where)
    return config


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for the connection. Its first argument is the
    :class:`ConnectionOptions`; the others are read as :func:`described` does."""

    def run(
        *,
        ctx: typer.Context,
        bootstrap: Bootstrap = None,
        command_config: CommandConfig = None,
        profile: Profile = None,
        timeout: Timeout = None,
        x: Options = None,
        **own: Any,
    ) -> None:
        sources = {name: ctx.get_parameter_source(name) for name in ("bootstrap", "profile")}
        variables = (
            name for name, source in sources.items() if source and source.name == "ENVIRONMENT"
        )
        given = ConnectionOptions(
            bootstrap, command_config, profile, timeout, frozenset(variables), tuple(x or ())
        )
        command(given, **own)

    context, *added, _own = inspect.signature(run, eval_str=True).parameters.values()
    signature = inspect.signature(command, eval_str=True)
    _connection, *own = signature.parameters.values()
    update_wrapper(run, command)
    run.__signature__ = signature.replace(parameters=[context, *own, *added])  # type: ignore[attr-defined]
    return described(run)


@asynccontextmanager
async def started(
    options: Mapping[str, str], timeout_s: float | None, **arguments: Any
) -> AsyncIterator[Admin]:
    """An admin client with these options, started.

    Raises BootstrapError if the cluster cannot be reached: with ``timeout_s`` after this time,
    which also limits each call. Without it, at once when no bootstrap server can be connected, and
    after :data:`_CONNECT_S` when none answers.
    """
    if timeout_s is not None:
        options = {**options, **dict.fromkeys(_START_TIMEOUTS, f"{timeout_s * 1000:.0f}")}
    admin = kafkaclient.admin.Admin(options, **arguments)
    try:
        await _start(admin, options[BOOTSTRAP], timeout_s)
        yield admin
    finally:
        await admin.close()


async def check_reachable(options: Mapping[str, str], timeout_s: float | None) -> None:
    """Raise if no client can connect with these options. Options that only other clients have are
    left out."""
    async with started(_of_admin(options), timeout_s):
        pass


async def missing_topics(
    options: Mapping[str, str], timeout_s: float | None, topics: Iterable[str]
) -> dict[str, str | None]:
    """As :func:`check_reachable`. Those of the topics that do not exist, each with the name that
    is most like it, if there is one."""
    missing: dict[str, str | None] = {}
    async with started(_of_admin(options), timeout_s) as admin:
        for topic in topics:
            try:
                await admin.describe_topic(topic)
            except UnknownTopicError:
                names = await admin.list_topics(internal=False)
                missing[topic] = next(iter(get_close_matches(topic, names, 1)), None)
    return missing


def _of_admin(options: Mapping[str, str]) -> dict[str, str]:
    known = _spellings(AdminConfig)
    return {name: value for name, value in options.items() if name in known}


def options_of(client: type[Any], options: Mapping[str, str]) -> dict[str, str]:
    """The options without those that only other clients have: one file serves all of them."""
    others = _spellings(ProducerConfig) | _spellings(ConsumerConfig)
    dropped = others - _spellings(client)
    return {name: value for name, value in options.items() if name not in dropped}


def _spellings(client: type[Any]) -> set[str]:
    return {spelling for option in client.OPTIONS.values() for spelling in option.spellings}


async def _start(admin: Admin, servers: str, timeout_s: float | None) -> None:
    api_timeout_s = admin.config.default_api_timeout_ms / 1000
    limit_s = min(_CONNECT_S, api_timeout_s) if timeout_s is None else timeout_s
    doing = f"connecting to {servers}"
    with shown_meanwhile(lambda: doing), _failures_said_once():

        def failed(error: KafkaError) -> None:
            nonlocal doing
            if timeout_s is None and isinstance(error, BrokerConnectionError):
                raise BootstrapError(
                    f"{error}. Check the address; --timeout SECONDS waits for a cluster that is "
                    "being started"
                ) from error
            doing = f"{error}; trying again"

        await admin.start(timeout_s=limit_s, on_failure=failed)


@contextmanager
def _failures_said_once() -> Iterator[None]:
    """Keep logging's last resort from printing what the command's error says, too."""
    logger, handler = logging.getLogger("kafkaclient"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
