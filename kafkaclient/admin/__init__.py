"""The admin client: topics, configurations, partition limits."""

from __future__ import annotations

from kafkaclient.admin.admin import Admin
from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.description import (
    BrokerDescription,
    BrokerUsage,
    ClusterDescription,
    LimitsReport,
)
from kafkaclient.admin.limits import Limits
from kafkaclient.admin.limits_file import FileLimits
from kafkaclient.admin.topics import TopicDescription
from kafkaclient.wire.admin import ConfigEntry, ConfigSource
from kafkaclient.wire.codec import NewTopic

__all__ = [
    "Admin",
    "BrokerDescription",
    "BrokerUsage",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "FileLimits",
    "Limits",
    "LimitsReport",
    "NewTopic",
    "TopicDescription",
]
