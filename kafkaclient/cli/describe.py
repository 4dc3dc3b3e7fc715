"""``kafkaclient cluster describe``: the brokers of any cluster, and what they have."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    cluster,
    print_json,
    print_table,
    run_admin,
)
from kafkaclient.cli.run import stdout_console

if TYPE_CHECKING:
    from kafkaclient.admin import ClusterDescription

__all__ = ["describe"]


def describe(
    *,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the brokers of any Kafka cluster that are up, what they have, and the controllers.

    Example: `kafkaclient cluster describe --bootstrap-server localhost:9092`
    """

    async def run() -> ClusterDescription:
        async with cluster(bootstrap_server, command_config) as admin:
            return await admin.describe_cluster()

    found = run_admin(run())
    if as_json:
        brokers = [broker._asdict() for broker in found.brokers]
        print_json(asdict(found) | {"brokers": brokers})
        return
    rows = []
    for broker in found.brokers:
        role = "active" if broker.node_id == found.controller_id else ""
        if not role and broker.node_id in found.controllers:
            role = "yes"
        rows.append(
            (
                broker.node_id,
                f"{broker.host}:{broker.port}",
                broker.rack or "",
                role,
                broker.leaders,
                broker.replicas,
                broker.out_of_sync or "",
            )
        )
    print_table(
        {
            "broker": "right",
            "address": "",
            "rack": "",
            "controller": "",
            "leads": "right",
            "replicas": "right",
            "behind": "right",
        },
        rows,
        title=f"cluster {found.cluster_id}",
    )
    console = stdout_console()
    offline = f", {found.offline_partitions} of them without a leader" * bool(
        found.offline_partitions
    )
    console.print(f"{found.topics} topics, {found.partitions} partitions{offline}")
    if found.missing_brokers:
        missing = ", ".join(map(str, found.missing_brokers))
        console.print(f"not up, though they have replicas: broker {missing}")
    elsewhere = set(found.controllers) - {broker.node_id for broker in found.brokers}
    if elsewhere:
        known = ", ".join(map(str, sorted(elsewhere)))
        console.print(f"controllers that are no brokers: {known}; active: {found.controller_id}")
