"""Protocol versions and error codes of subscriptions and assignments
(``StreamsAssignmentProtocolVersions.java``, ``AssignorError.java``)."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "EARLIEST_PROBEABLE_VERSION",
    "LATEST_SUPPORTED_VERSION",
    "MIN_NAMED_TOPOLOGY_VERSION",
    "UNKNOWN",
    "AssignorError",
]

LATEST_SUPPORTED_VERSION = 11  # also that of Kafka Streams 3.3 to 4.3
EARLIEST_PROBEABLE_VERSION = 3  # from here on members send the latest version they support
MIN_NAMED_TOPOLOGY_VERSION = 10
UNKNOWN = -1  # the latest supported version of members that do not send it (versions 1 and 2)


class AssignorError(IntEnum):
    """An error that the leader or a member sends to the whole group."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4
