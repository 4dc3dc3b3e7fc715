"""``kafkaclient cluster``: real Kafka brokers on this machine, in the background."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.cli.admin import describe
from kafkaclient.cli.connection import AsJson, described
from kafkaclient.cli.output import print_json, print_table, run_command, stderr_console
from kafkaclient.cli.profile_file import pairs
from kafkaclient.testing.background import DEFAULT_NAME, BackgroundCluster
from kafkaclient.testing.errors import ClusterNotRunningError
from kafkaclient.testing.settings import DEFAULT_VERSION, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kafkaclient.testing.cluster import BrokerStatus

DEFAULT_PORT = 9092  # what tutorials, and the defaults of other clients, use
NOT_RUNNING = 3  # exit status of `status` if there is no cluster, as for a stopped service

app = typer.Typer(
    help="Real Kafka brokers on this machine, without Docker; `describe` is for any cluster.\n\n"
    "Example: `kafkaclient cluster up`, then produce to the address it prints, "
    "then `kafkaclient cluster down`.\n\n"
    "Exit status 3 of `status`: no cluster is running.",
    no_args_is_help=True,
)
app.command("describe")(describe)

Name = Annotated[str, typer.Option(help="The name, if there are several.", metavar="NAME")]
Broker = Annotated[int, typer.Argument(min=0, help="The broker's number, from 0.")]
Milliseconds = Annotated[float, typer.Argument(min=0, help="Milliseconds; 0 ends the fault.")]


@app.command()
@described
def up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=15, help="How many brokers.")] = 3,
    rack: Annotated[list[str] | None, "A broker's rack; once for each broker."] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A broker setting; may be repeated."),
    ] = None,
    version: Annotated[str, "The Kafka version."] = DEFAULT_VERSION,
    port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65_500,
            help="Broker 0's port; others take the next ones. Random ports if one is in use.",
        ),
    ] = DEFAULT_PORT,
    name: Name = DEFAULT_NAME,
    as_json: AsJson = False,
) -> None:
    """Start a cluster in the background; do nothing if it is running already.

    The first start downloads Kafka (56 MB) into the user's cache.

    Examples:

    - `kafkaclient cluster up`
    - `kafkaclient cluster up --brokers 1 --config message.max.bytes=5000000`
    - `kafkaclient cluster up --json`
    """

    async def run() -> None:
        settings = pairs(config, "--config", strip=True)
        spec = ClusterSpec(brokers, rack, settings, version, long_lived=True, port=port)
        cluster = await BackgroundCluster.up(name, spec, say=stderr_console().print)
        if as_json:
            print_json(_addresses(cluster))
        else:
            _print_table(cluster, await cluster.status())

    run_command(run())


@app.command()
def status(*, name: Name = DEFAULT_NAME, as_json: AsJson = False) -> None:
    """Show the brokers, their addresses and what they are doing."""

    async def run() -> None:
        cluster = await asyncio.to_thread(BackgroundCluster.find, name)
        if cluster is None:
            if as_json:
                print_json({"running": False})
            else:
                typer.echo("no cluster is running", err=True)
            raise typer.Exit(NOT_RUNNING)
        brokers = await cluster.status()
        if as_json:
            print_json({"running": True, **_addresses(cluster), "brokers": _rows(brokers)})
        else:
            _print_table(cluster, brokers)

    run_command(run())


@app.command()
def down(*, name: Name = DEFAULT_NAME) -> None:
    """Stop the cluster and delete its data; do nothing if no cluster is running."""
    ended = run_command(BackgroundCluster.down(name))
    typer.echo("the cluster has ended" if ended else "no cluster was running", err=True)


@app.command()
def delay(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Make a broker slow: delay each Produce response by MS milliseconds, one after the other.

    This is the experiment of KIP-794. It affects clients of the proxied addresses. For other faults
    see `kafkaclient cluster fault`.

    Example:

    - `kafkaclient cluster delay 0 20`
    """
    _do(name, lambda cluster: cluster.delay_produce(broker, ms / 1000))


def _on_broker(
    group: typer.Typer,
    command: str,
    text: str,
    action: Callable[[BackgroundCluster, int], Coroutine[Any, Any, object]],
    done: str,
) -> None:
    """Add a command that has a broker as its argument. ``done``: what the broker is then."""

    def run(broker: Broker, *, name: Name = DEFAULT_NAME) -> None:
        _do(name, lambda cluster: action(cluster, broker))
        typer.echo(f"broker {broker} {done}", err=True)

    group.command(command, help=text)(run)


_on_broker(
    app,
    "kill",
    "Kill a broker (SIGKILL); `restart` starts it again.",
    BackgroundCluster.kill,
    "is killed",
)
_on_broker(
    app,
    "pause",
    "Freeze a broker (SIGSTOP): its connections stay open, but it does not answer.",
    BackgroundCluster.pause,
    "is paused",
)
_on_broker(
    app, "resume", "Resume a paused broker (SIGCONT).", BackgroundCluster.resume, "is resumed"
)
_on_broker(
    app,
    "restart",
    "Shut a broker down in an orderly way, if it runs, and start it with its data and ports.",
    BackgroundCluster.restart,
    "is restarted",
)


@app.command()
def heal(*, name: Name = DEFAULT_NAME) -> None:
    """End all faults, resume paused brokers, and start stopped brokers."""
    _do(name, lambda cluster: cluster.heal())
    typer.echo("all brokers run, without faults", err=True)


faults = typer.Typer(help="Faults on a broker's proxied address.", no_args_is_help=True)
app.add_typer(faults, name="fault")


@faults.command()
def delay_all(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Delay each response of a broker, one after the other."""
    _do(name, lambda cluster: cluster.proxy(broker).delay_all(ms / 1000))


@faults.command()
def round_trip(broker: Broker, ms: Milliseconds, *, name: Name = DEFAULT_NAME) -> None:
    """Add a network round trip of MS milliseconds."""
    _do(name, lambda cluster: cluster.proxy(broker).round_trip(ms / 1000))


_on_broker(
    faults,
    "stall",
    "Forward nothing to or from a broker, with connections open, until `unstall`.",
    lambda cluster, broker: cluster.proxy(broker).stall(),
    "forwards nothing at its proxied address",
)
_on_broker(
    faults,
    "unstall",
    "End a stall, and forward the held data.",
    lambda cluster, broker: cluster.proxy(broker).resume(),
    "forwards again",
)


@faults.command()
def cut(
    broker: Broker,
    *,
    reset: Annotated[bool, typer.Option(help="With RST instead of FIN.")] = False,
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
                + "".join(f", or give --name {each}" for each in BackgroundCluster.names())
            )
        await action(cluster)

    run_command(run())


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


def _print_table(cluster: BackgroundCluster, brokers: Sequence[BrokerStatus]) -> None:
    columns = ("broker", "state", "controller", "direct", "proxied", "pid")
    shown = [
        row | {"controller": "yes" if row["controller"] else "no", "pid": row["pid"] or ""}
        for row in _rows(brokers)
    ]
    print_table(
        columns,
        ([row[column] for column in columns] for row in shown),
        title=f"Kafka {cluster.version}, cluster {cluster.name!r}",
    )
    typer.echo(f"bootstrap          {cluster.bootstrap}")
    typer.echo(f"proxied bootstrap  {cluster.proxied_bootstrap}")
    typer.echo(f"logs and data      {cluster.directory}")
