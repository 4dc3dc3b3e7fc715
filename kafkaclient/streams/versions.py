"""Versions of what members tell each other, and the codes in it
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

LATEST_SUPPORTED_VERSION = 11
"""Of Kafka Streams 3.3 to 4.3, too."""
EARLIEST_PROBEABLE_VERSION = 3
"""Members of this version on say how far they could go, so that a newer one can come down."""
MIN_NAMED_TOPOLOGY_VERSION = 10
UNKNOWN = -1
"""The latest version that members of versions 1 and 2 support: they do not say."""


class AssignorError(IntEnum):
    """What a leader, or a member, tells the whole group."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4
