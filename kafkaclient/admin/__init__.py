"""The admin client: topics, configurations, partition limits and throttled reassignments.

Every name is loaded when it is first used: the commands' help needs none of them.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than all the rest
if TYPE_CHECKING:
    from kafkaclient.admin.admin import Admin
    from kafkaclient.admin.configs import ConfigResource
    from kafkaclient.admin.description import (
        BrokerDescription,
        ClusterDescription,
        TopicDescription,
    )
    from kafkaclient.admin.limits import BrokerUsage, Limits, LimitsReport
    from kafkaclient.admin.limits_store import FileLimits
    from kafkaclient.admin.reassign.estimate import Estimate, SafeRange
    from kafkaclient.admin.reassign.outcome import (
        Begun,
        Lifted,
        MoveState,
        PartitionState,
        Throttles,
        Verification,
    )
    from kafkaclient.admin.reassign.plan import ReassignmentPlan
    from kafkaclient.admin.reassign.progress import BrokerProgress, PartitionProgress, Progress
    from kafkaclient.admin.reassign.reassigner import Reassigner
    from kafkaclient.admin.reassign.throttled_reassignment import (
        ReplicationQuotas,
        ThrottledReassignment,
    )
    from kafkaclient.wire.admin import ConfigEntry, ConfigSource
    from kafkaclient.wire.topics import NewTopic
    from kafkaclient.wire.transactions import TransactionDescription, TransactionListing, TxnState

__all__ = [
    "Admin",
    "Begun",
    "BrokerDescription",
    "BrokerProgress",
    "BrokerUsage",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "Estimate",
    "FileLimits",
    "Lifted",
    "Limits",
    "LimitsReport",
    "MoveState",
    "NewTopic",
    "PartitionProgress",
    "PartitionState",
    "Progress",
    "Reassigner",
    "ReassignmentPlan",
    "ReplicationQuotas",
    "SafeRange",
    "ThrottledReassignment",
    "Throttles",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "TxnState",
    "Verification",
]

_HOMES = {
    "admin.admin": "Admin",
    "admin.configs": "ConfigResource",
    "admin.description": "BrokerDescription ClusterDescription TopicDescription",
    "admin.limits": "BrokerUsage Limits LimitsReport",
    "admin.limits_store": "FileLimits",
    "admin.reassign.estimate": "Estimate SafeRange",
    "admin.reassign.outcome": "Begun Lifted MoveState PartitionState Throttles Verification",
    "admin.reassign.plan": "ReassignmentPlan",
    "admin.reassign.progress": "BrokerProgress PartitionProgress Progress",
    "admin.reassign.reassigner": "Reassigner",
    "admin.reassign.throttled_reassignment": "ReplicationQuotas ThrottledReassignment",
    "wire.admin": "ConfigEntry ConfigSource",
    "wire.topics": "NewTopic",
    "wire.transactions": "TransactionDescription TransactionListing TxnState",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kafkaclient.{_HOME_OF[name]}"), name)
