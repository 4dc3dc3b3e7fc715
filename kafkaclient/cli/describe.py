"""``kafkaclient cluster describe``: the brokers of any cluster."""

from __future__ import annotations

from dataclasses import asdict

import typer

from kafkaclient.admin.error_codes import CLUSTER_AUTHORIZATION_FAILED
from kafkaclient.broker_errors import denied
from kafkaclient.cli.admin import Connect, on_cluster
from kafkaclient.cli.options import AsJson
from kafkaclient.cli.output import joined, print_json, print_message, print_table


@on_cluster
async def describe(connect: Connect, *, as_json: AsJson = False) -> None:
    """Show the brokers of any Kafka cluster that are up, their partitions, and the controllers.

    Example:

    - `kafkaclient cluster describe -b localhost:9092`
    """
    async with connect() as admin:
        found = await admin.describe_cluster()
    if as_json:
        print_json(asdict(found) | {"brokers": [broker._asdict() for broker in found.brokers]})
        return
    controllers = found.controllers or ()
    roles = dict.fromkeys(controllers, "yes") | {found.controller_id: "active"}
    print_table(
        ("broker", "address", "rack", "controller", "leads", "replicas", "behind"),
        (
            (
                broker.node_id,
                f"{broker.host}:{broker.port}",
                broker.rack or "",
                roles.get(broker.node_id, ""),
                broker.leaders,
                broker.replicas,
                broker.out_of_sync or "",
            )
            for broker in found.brokers
        ),
        right=("broker", "leads", "replicas", "behind"),
        title=f"cluster {found.cluster_id}",
    )
    offline = found.offline_partitions
    without = f", {offline} of them without a leader" if offline else ""
    typer.echo(f"{found.topics} topics, {found.partitions} partitions{without}")
    if found.missing_brokers:
        typer.echo(f"not up, though they have replicas: broker {joined(found.missing_brokers)}")
    if found.controllers is None:
        advice = denied(CLUSTER_AUTHORIZATION_FAILED, "Describe")
        print_message("note", f"the controllers are not known: {advice}")
    elsewhere = set(controllers) - {broker.node_id for broker in found.brokers}
    if elsewhere:
        known = joined(sorted(elsewhere))
        typer.echo(f"controllers that are not brokers: {known}; active: {found.controller_id}")
