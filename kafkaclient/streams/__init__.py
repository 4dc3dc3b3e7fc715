"""Stateful stream applications whose tasks move between instances without a pause (KIP-441).

The package has the task assignor, and a runtime that restores and moves state on real brokers.
docs/how-to/streams.md describes both.

Only the runtime needs the extra ``streams``: its modules are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kafkaclient.streams.assignor import (
    ConsumerTasks,
    assign,
    assign_tasks_to_threads,
    assign_to_prior_owners,
)
from kafkaclient.streams.clients import (
    Assignment,
    AssignmentConfigs,
    Client,
    ClientAssignment,
)
from kafkaclient.streams.description import (
    ApplicationDescription,
    CopyDescription,
    MemberDescription,
    Role,
    describe_application,
)
from kafkaclient.streams.group_protocol import HostInfo
from kafkaclient.streams.metrics import AppState, RestoreListener, StreamsMetricsSnapshot
from kafkaclient.streams.tasks import TaskDescription, TaskId, TaskState

if TYPE_CHECKING:
    from kafkaclient.streams.app import StreamsApp
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.declarations import (
        DeadLetter,
        Emit,
        Record,
        RepartitionTopic,
        Store,
        Topic,
    )
    from kafkaclient.streams.key_value_store import KeyValueStore
    from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes
    from kafkaclient.streams.runtime.queries import ReadOnlyStore
    from kafkaclient.streams.serdes import Serde
    from kafkaclient.streams.testing import TopologyTest

__all__ = [
    "AppState",
    "ApplicationDescription",
    "Assignment",
    "AssignmentConfigs",
    "ChangelogBytes",
    "Client",
    "ClientAssignment",
    "ConsumerTasks",
    "CopyDescription",
    "DeadLetter",
    "Emit",
    "HostInfo",
    "KeyValueStore",
    "MemberDescription",
    "ReadOnlyStore",
    "Record",
    "RepartitionTopic",
    "RestoreListener",
    "Role",
    "Serde",
    "Store",
    "StreamsApp",
    "StreamsConfig",
    "StreamsMetricsSnapshot",
    "TaskDescription",
    "TaskId",
    "TaskState",
    "Topic",
    "TopologyTest",
    "assign",
    "assign_tasks_to_threads",
    "assign_to_prior_owners",
    "describe_application",
]

_RUNTIME_MODULES = {
    "ChangelogBytes": "runtime.changelog_reader",
    "DeadLetter": "declarations",
    "Emit": "declarations",
    "KeyValueStore": "key_value_store",
    "ReadOnlyStore": "runtime.queries",
    "Record": "declarations",
    "RepartitionTopic": "declarations",
    "Serde": "serdes",
    "Store": "declarations",
    "StreamsApp": "app",
    "StreamsConfig": "config",
    "Topic": "declarations",
    "TopologyTest": "testing",
}


def __getattr__(name: str) -> object:
    module = _RUNTIME_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
