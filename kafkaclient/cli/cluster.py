"""``kafkaclient cluster``: real Kafka brokers on this machine, in the background."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kafkaclient.cli.describe import describe
from kafkaclient.cli.run import run_command, stderr_console
from kafkaclient.errors import ConfigError
from kafkaclient.testing.background import DEFAULT_NAME, BackgroundCluster
from kafkaclient.testing.errors import ClusterNotRunningError
from kafkaclient.testing.settings import DEFAULT_VERSION, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kafkaclient.testing.cluster import BrokerStatus

__all__ = ["app"]

NOT_RUNNING = 3
"""Exit status of ``status`` when there is no cluster, as for a stopped service."""

app = typer.Typer(
    help="Real Kafka brokers on this machine, without Docker; `describe` is for any cluster.\n\n"
    "Example: `kafkaclient cluster up`, then produce to the address it prints, "
    "then `kafkaclient cluster down`.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use, 3 (`status`) no cluster is running.",
    no_args_is_help=True,
)
app.command("describe")(describe)

Name = Annotated[str, typer.Option(help="Which cluster, when there are several.", metavar="NAME")]
Broker = Annotated[int, typer.Argument(min=0, help="The broker's number, from 0.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Milliseconds = Annotated[float, typer.Argument(min=0, help="Milliseconds; 0 ends it.")]


@app.command()
def up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=15, help="How many brokers.")] = 3,
    rack: Annotated[
        list[str] | None, typer.Option(help="A broker's rack; once for each broker.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A broker setting; may be repeated."),
    ] = None,
    version: Annotated[str, typer.Option(help="The Kafka version.")] = DEFAULT_VERSION,
    name: Name = DEFAULT_NAME,
    as_json: AsJson = False,
) -> None:
    """Start a cluster and leave it running; do nothing when it runs already.

    The first time, Kafka (56 MB) is fetched into the user's cache.

    Examples: `kafkaclient cluster up`,
    `kafkaclient cluster up --brokers 1 --config message.max.bytes=5000000`,
    `kafkaclient cluster up --json`
    """
    console = stderr_console()

    async def run() -> None:
        spec = ClusterSpec(brokers, rack, _settings(config or []), version, long_lived=True)
        cluster = await BackgroundCluster.up(name, spec, say=console.print)
        if as_json:
            _print_json(_addresses(cluster))
        else:
            _print_table(cluster, await cluster.status())

    run_command(run())


@app.command()
def status(*, name: Name = DEFAULT_NAME, as_json: AsJson = False) -> None:
    """Show the brokers, their addresses and what they are doing."""

    async def run() -> bool:
        cluster = await asyncio.to_thread(BackgroundCluster.find, name)
        if cluster is None:
            if as_json:
                _print_json({"running": False})
            else:
                stderr_console().print("no cluster is running")
            return False
        brokers = await cluster.status()
        if as_json:
            _print_json({"running": True, **_addresses(cluster), "brokers": _rows(brokers)})
        else:
            _print_table(cluster, brokers)
        return True

    if not run_command(run()):
        raise typer.Exit(NOT_RUNNING)


@app.command()
def down(*, name: Name = DEFAULT_NAME) -> None:
    """End the cluster and throw its data away; do nothing when none is running."""
    ended = run_command(BackgroundCluster.down(name))
    stderr_console().print("the cluster has ended" if ended else "no cluster was running")


@app.command()
def delay(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Make a broker slow: each Produce response MS milliseconds late, one after the other.

    This is KIP-794's experiment. It acts on the proxied addresses. The other faults are
    under `kafkaclient cluster fault`.

    Example: `kafkaclient cluster delay 0 20`
    """
    _do(name, lambda cluster: cluster.delay_produce(broker, ms / 1000))


@app.command()
def kill(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """End a broker at once (SIGKILL); `restart` brings it back."""
    _do(name, lambda cluster: cluster.kill(broker))


@app.command()
def pause(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """Freeze a broker (SIGSTOP): its connections stay open, it answers nothing."""
    _do(name, lambda cluster: cluster.pause(broker))


@app.command()
def resume(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """Let a paused broker go on (SIGCONT)."""
    _do(name, lambda cluster: cluster.resume(broker))


@app.command()
def restart(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """End a broker in an orderly way, if it runs, and start it with its data and ports."""
    _do(name, lambda cluster: cluster.restart(broker))


@app.command()
def heal(*, name: Name = DEFAULT_NAME) -> None:
    """End all faults: proxies healed, paused brokers resumed, stopped ones started."""
    _do(name, lambda cluster: cluster.heal())


faults = typer.Typer(help="Faults on a broker's proxied address.", no_args_is_help=True)
app.add_typer(faults, name="fault")


@faults.command()
def delay_all(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Delay every response of a broker, one after the other."""
    _do(name, lambda cluster: cluster.proxy(broker).delay_all(ms / 1000))


@faults.command()
def round_trip(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Move a broker further away: add a network round trip."""
    _do(name, lambda cluster: cluster.proxy(broker).round_trip(ms / 1000))


@faults.command()
def stall(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """Forward nothing to or from a broker, with connections open, until `unstall`."""
    _do(name, lambda cluster: cluster.proxy(broker).stall())


@faults.command()
def unstall(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
    """End a stall; what was held back is forwarded."""
    _do(name, lambda cluster: cluster.proxy(broker).resume())


@faults.command()
def cut(
    broker: Broker,
    *,
    reset: Annotated[bool, typer.Option(help="By RST instead of FIN.")] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Close every connection to a broker, once."""
    _do(name, lambda cluster: cluster.proxy(broker).cut(reset=reset))


def _do(name: str, action: Callable[[BackgroundCluster], Coroutine[Any, Any, object]]) -> None:
    async def run() -> None:
        cluster = await asyncio.to_thread(BackgroundCluster.find, name)
        if cluster is None:
            raise ClusterNotRunningError(
                f"no cluster named {name!r} is running; start one with `kafkaclient cluster up`"
            )
        await action(cluster)

    run_command(run())


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"--config takes KEY=VALUE, not {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def _addresses(cluster: BackgroundCluster) -> dict[str, str]:
    return {"bootstrap": cluster.bootstrap, "proxied_bootstrap": cluster.proxied_bootstrap}


def _rows(brokers: Sequence[BrokerStatus]) -> list[dict[str, Any]]:
    return [
        {
            "broker": broker.node_id,
            "state": broker.state,
            "controller": broker.controller,
            "rack": broker.rack,
            "direct": f"127.0.0.1:{broker.port}",
            "proxied": f"127.0.0.1:{broker.proxied_port}",
            "pid": broker.pid,
            "log": str(broker.log_file),
        }
        for broker in brokers
    ]


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))


def _print_table(cluster: BackgroundCluster, brokers: Sequence[BrokerStatus]) -> None:
    table = Table(title=f"Kafka {cluster.version}, cluster {cluster.name!r}", title_justify="left")
    for column in ("broker", "state", "controller", "direct", "proxied", "pid"):
        table.add_column(column)
    for row in _rows(brokers):
        controller = "yes" if row["controller"] else "no"
        cells = (row["broker"], row["state"], controller, row["direct"], row["proxied"])
        table.add_row(*map(str, cells), str(row["pid"] or ""))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"bootstrap          {cluster.bootstrap}", soft_wrap=True)
    console.print(f"proxied bootstrap  {cluster.proxied_bootstrap}", soft_wrap=True)
    console.print(f"logs and data      {cluster.directory}", soft_wrap=True)
