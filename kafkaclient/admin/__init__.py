"""The admin client: topics, configurations, partition limits and throttled reassignments."""

from __future__ import annotations

from kafkaclient.admin.admin import Admin
from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.description import BrokerDescription, ClusterDescription, TopicDescription
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
