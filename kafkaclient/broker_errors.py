"""The error for each of Kafka's error codes.

Names, codes and the retriable flag follow Java's ``org.apache.kafka.common.protocol.Errors``.
"""

from __future__ import annotations

from enum import IntEnum

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    CorruptBatchError,
    InvalidTopicError,
    LeaderChangedError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ProducerFencedError,
    RefusedRecordError,
    SequenceError,
    TopicExistsError,
    UnknownTopicError,
)


class ErrorCode(IntEnum):
    """The error codes that this package treats in a special way; :data:`BROKER_ERRORS` has all."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    STALE_MEMBER_EPOCH = 113
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    REBOOTSTRAP_REQUIRED = 129


# fmt: off
# (code, Kafka's name, retriable, class, what to do or what it means)
_TABLE: tuple[tuple[int, str, bool, type[BrokerError], str], ...] = (
    (-1, "UNKNOWN_SERVER_ERROR", False, BrokerError, "unexpected server error; see the broker's log"),
    (1, "OFFSET_OUT_OF_RANGE", False, OffsetOutOfRangeError, "the offset is outside the range of the log"),
    (2, "CORRUPT_MESSAGE", True, CorruptBatchError, "the batch failed its checksum or is malformed"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", True, UnknownTopicError, "this broker does not host the topic-partition"),
    (4, "INVALID_FETCH_SIZE", False, BrokerError, "the requested fetch size is invalid"),
    (5, "LEADER_NOT_AVAILABLE", True, LeaderChangedError, "no leader: an election is under way"),
    (6, "NOT_LEADER_OR_FOLLOWER", True, LeaderChangedError, "this broker does not lead the partition"),
    (7, "REQUEST_TIMED_OUT", True, BrokerError, "the replicas did not acknowledge in time"),
    (8, "BROKER_NOT_AVAILABLE", False, BrokerError, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", True, BrokerError, "the replica is not available"),
    (10, "MESSAGE_TOO_LARGE", False, BrokerError, "larger than the topic's max.message.bytes"),
    (11, "STALE_CONTROLLER_EPOCH", False, BrokerError, "the controller moved to another broker"),
    (12, "OFFSET_METADATA_TOO_LARGE", False, BrokerError, "the offset's metadata string is too large"),
    (13, "NETWORK_EXCEPTION", True, BrokerError, "the server disconnected before answering"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", True, BrokerError, "the coordinator is loading"),
    (15, "COORDINATOR_NOT_AVAILABLE", True, BrokerError, "the coordinator is not available"),
    (16, "NOT_COORDINATOR", True, BrokerError, "this broker is not the coordinator"),
    (17, "INVALID_TOPIC_EXCEPTION", False, InvalidTopicError, "the topic name is not acceptable"),
    (18, "RECORD_LIST_TOO_LARGE", False, BrokerError, "larger than the broker's segment size (segment.bytes)"),
    (19, "NOT_ENOUGH_REPLICAS", True, NotEnoughReplicasError, "fewer in-sync replicas than min.insync.replicas; not written"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, NotEnoughReplicasError, "written to fewer replicas than min.insync.replicas"),
    (21, "INVALID_REQUIRED_ACKS", False, BrokerError, "acks must be -1, 0 or 1"),
    (22, "ILLEGAL_GENERATION", False, BrokerError, "the group's generation is not valid"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", False, BrokerError, "the member's protocol does not fit the group's"),
    (24, "INVALID_GROUP_ID", False, BrokerError, "the group id is not valid"),
    (25, "UNKNOWN_MEMBER_ID", False, BrokerError, "the coordinator does not know this member"),
    (26, "INVALID_SESSION_TIMEOUT", False, BrokerError, "the session timeout is out of the broker's range"),
    (27, "REBALANCE_IN_PROGRESS", False, BrokerError, "the group is rebalancing"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", False, BrokerError, "the committed offset data is too large"),
    (29, "TOPIC_AUTHORIZATION_FAILED", False, AuthorizationError, "not authorized to access the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", False, AuthorizationError, "not authorized to access the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", False, AuthorizationError, "not authorized on the cluster"),
    (32, "INVALID_TIMESTAMP", False, RefusedRecordError, "a record's timestamp is out of the topic's range"),
    (33, "UNSUPPORTED_SASL_MECHANISM", False, BrokerError, "the broker does not support the SASL mechanism"),
    (34, "ILLEGAL_SASL_STATE", False, BrokerError, "the request is not valid in the current SASL state"),
    (35, "UNSUPPORTED_VERSION", False, BrokerError, "the broker does not support this version of the API"),
    (36, "TOPIC_ALREADY_EXISTS", False, TopicExistsError, "a topic of this name exists"),
    (37, "INVALID_PARTITIONS", False, BrokerError, "the number of partitions is not acceptable"),
    (38, "INVALID_REPLICATION_FACTOR", False, BrokerError, "the replication factor is not acceptable"),
    (39, "INVALID_REPLICA_ASSIGNMENT", False, BrokerError, "the replica assignment is not acceptable"),
    (40, "INVALID_CONFIG", False, BrokerError, "a configuration is not acceptable"),
    (41, "NOT_CONTROLLER", True, BrokerError, "this broker is not the controller"),
    (42, "INVALID_REQUEST", False, BrokerError, "the request is malformed or not allowed"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False, BrokerError, "the topic's message format is too old"),
    (44, "POLICY_VIOLATION", False, PolicyViolationError, "the request violates a policy of the cluster"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, SequenceError, "the batch's sequence does not follow the last one"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", False, SequenceError, "the batch was written before"),
    (47, "INVALID_PRODUCER_EPOCH", False, ProducerFencedError, "a producer with a newer epoch exists"),
    (48, "INVALID_TXN_STATE", False, BrokerError, "the transaction is in another state"),
    (49, "INVALID_PRODUCER_ID_MAPPING", False, ProducerFencedError, "the transactional id has expired (transactional.id.expiration.ms), or belongs to another producer since: only a new producer can go on"),
    (50, "INVALID_TRANSACTION_TIMEOUT", False, BrokerError, "larger than the broker's transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", True, BrokerError, "an earlier transaction is still being ended"),
    (52, "TRANSACTION_COORDINATOR_FENCED", False, BrokerError, "the transaction coordinator has moved"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, AuthorizationError, "not authorized for the transactional id"),
    (54, "SECURITY_DISABLED", False, BrokerError, "security features are disabled"),
    (55, "OPERATION_NOT_ATTEMPTED", False, BrokerError, "not attempted because another part of the request failed"),
    (56, "KAFKA_STORAGE_ERROR", True, LeaderChangedError, "disk error on the broker"),
    (57, "LOG_DIR_NOT_FOUND", False, BrokerError, "the log directory does not exist"),
    (58, "SASL_AUTHENTICATION_FAILED", False, BrokerError, "authentication failed"),
    (59, "UNKNOWN_PRODUCER_ID", False, SequenceError, "the broker no longer knows this producer's state"),
    (60, "REASSIGNMENT_IN_PROGRESS", False, BrokerError, "a partition reassignment is under way"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", False, BrokerError, "delegation tokens are disabled"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", False, BrokerError, "no such delegation token"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", False, BrokerError, "the principal does not own the token"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False, BrokerError, "not allowed on this connection"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", False, AuthorizationError, "not authorized for the token"),
    (66, "DELEGATION_TOKEN_EXPIRED", False, BrokerError, "the delegation token has expired"),
    (67, "INVALID_PRINCIPAL_TYPE", False, BrokerError, "the principal type is not supported"),
    (68, "NON_EMPTY_GROUP", False, BrokerError, "the group is not empty"),
    (69, "GROUP_ID_NOT_FOUND", False, BrokerError, "no such group"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", True, BrokerError, "the fetch session is gone"),
    (71, "INVALID_FETCH_SESSION_EPOCH", True, BrokerError, "the fetch session's epoch is not valid"),
    (72, "LISTENER_NOT_FOUND", True, LeaderChangedError, "the leader has no listener of this name"),
    (73, "TOPIC_DELETION_DISABLED", False, BrokerError, "topic deletion is disabled"),
    (74, "FENCED_LEADER_EPOCH", True, LeaderChangedError, "the leader epoch in the request is old"),
    (75, "UNKNOWN_LEADER_EPOCH", True, BrokerError, "the leader epoch in the request is newer than the broker's"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", False, BrokerError, "the broker does not support this compression type"),
    (77, "STALE_BROKER_EPOCH", False, BrokerError, "the broker's epoch has changed"),
    (78, "OFFSET_NOT_AVAILABLE", True, BrokerError, "the leader's high watermark is not settled yet"),
    (79, "MEMBER_ID_REQUIRED", False, BrokerError, "the member must join again with the id given"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", True, BrokerError, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", False, BrokerError, "the group is full"),
    (82, "FENCED_INSTANCE_ID", False, BrokerError, "another member uses the same instance id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True, BrokerError, "no eligible leader is available"),
    (84, "ELECTION_NOT_NEEDED", True, BrokerError, "the partition needs no election"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", False, BrokerError, "no reassignment is under way"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", False, BrokerError, "the group is subscribed to the topic"),
    (87, "INVALID_RECORD", False, RefusedRecordError, "the broker's validation refused a record"),
    (88, "UNSTABLE_OFFSET_COMMIT", True, BrokerError, "offsets of an open transaction are pending"),
    (89, "THROTTLING_QUOTA_EXCEEDED", True, BrokerError, "a quota of the cluster is exceeded"),
    (90, "PRODUCER_FENCED", False, ProducerFencedError, "a newer producer with this transactional id exists"),
    (91, "RESOURCE_NOT_FOUND", False, BrokerError, "no such resource"),
    (92, "DUPLICATE_RESOURCE", False, BrokerError, "the resource is named twice"),
    (93, "UNACCEPTABLE_CREDENTIAL", False, BrokerError, "the credential is not acceptable"),
    (94, "INCONSISTENT_VOTER_SET", False, BrokerError, "the voter sets do not agree"),
    (95, "INVALID_UPDATE_VERSION", False, BrokerError, "the update's version is not valid"),
    (96, "FEATURE_UPDATE_FAILED", False, BrokerError, "the features could not be updated"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", False, BrokerError, "the forwarded principal could not be read"),
    (98, "SNAPSHOT_NOT_FOUND", False, BrokerError, "no such snapshot"),
    (99, "POSITION_OUT_OF_RANGE", False, BrokerError, "the position is outside the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", True, UnknownTopicError, "this broker does not host the topic id"),
    (101, "DUPLICATE_BROKER_REGISTRATION", False, BrokerError, "the broker id is in use"),
    (102, "BROKER_ID_NOT_REGISTERED", False, BrokerError, "the broker id is not registered"),
    (103, "INCONSISTENT_TOPIC_ID", True, UnknownTopicError, "the log's topic id is not the request's"),
    (104, "INCONSISTENT_CLUSTER_ID", False, BrokerError, "the cluster ids do not agree"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", False, BrokerError, "no such transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", True, BrokerError, "topic ids are used inconsistently in the session"),
    (107, "INELIGIBLE_REPLICA", False, BrokerError, "the replica may not join the in-sync set"),
    (108, "NEW_LEADER_ELECTED", False, BrokerError, "the change elected a new leader"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", False, BrokerError, "the offset is in tiered storage"),
    (110, "FENCED_MEMBER_EPOCH", False, BrokerError, "the member's epoch is fenced"),
    (111, "UNRELEASED_INSTANCE_ID", False, BrokerError, "the instance id is still in use"),
    (112, "UNSUPPORTED_ASSIGNOR", False, BrokerError, "the assignor is not supported"),
    (113, "STALE_MEMBER_EPOCH", False, BrokerError, "the member's epoch is old"),
    (114, "MISMATCHED_ENDPOINT_TYPE", False, BrokerError, "sent to the wrong kind of endpoint"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", False, BrokerError, "this kind of endpoint is not supported"),
    (116, "UNKNOWN_CONTROLLER_ID", False, BrokerError, "no such controller"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", False, BrokerError, "the telemetry subscription is not known"),
    (118, "TELEMETRY_TOO_LARGE", False, BrokerError, "the telemetry push is too large"),
    (119, "INVALID_REGISTRATION", False, BrokerError, "the broker registration is not valid"),
    (120, "TRANSACTION_ABORTABLE", False, BrokerError, "the transaction can only be aborted"),
    (121, "INVALID_RECORD_STATE", False, BrokerError, "the record's delivery state does not allow this"),
    (122, "SHARE_SESSION_NOT_FOUND", True, BrokerError, "the share session is gone"),
    (123, "INVALID_SHARE_SESSION_EPOCH", True, BrokerError, "the share session's epoch is not valid"),
    (124, "FENCED_STATE_EPOCH", False, BrokerError, "the state epoch is old"),
    (125, "INVALID_VOTER_KEY", False, BrokerError, "the voter key does not match"),
    (126, "DUPLICATE_VOTER", False, BrokerError, "the voter is already there"),
    (127, "VOTER_NOT_FOUND", False, BrokerError, "no such voter"),
    (128, "INVALID_REGULAR_EXPRESSION", False, BrokerError, "the regular expression is not valid"),
    (129, "REBOOTSTRAP_REQUIRED", False, BrokerError, "the client must bootstrap again"),
)
# fmt: on

BROKER_ERRORS: dict[int, tuple[str, bool, type[BrokerError], str]] = {
    code: (name, retriable, cls, advice) for code, name, retriable, cls, advice in _TABLE
}
"""code -> (Kafka's name, retriable, class raised, meaning)."""


def broker_error(
    code: int, context: str = "", detail: str | None = None, *, advice: str | None = None
) -> BrokerError:
    """The error for a broker's code.

    ``context`` is what was attempted; ``detail`` is the broker's own message; ``advice`` replaces
    the table's text, see :func:`denied`. An unknown code gives a plain :class:`BrokerError` that
    is not retriable.
    """
    name, retriable, cls, meaning = BROKER_ERRORS.get(
        code, (f"ERROR_{code}", False, BrokerError, "a code unknown to this client")
    )
    text = f"{name} ({code}): {advice or meaning}"
    if detail and not detail.startswith("Request Request("):  # a controller's dump of a request
        text += f"; the broker says: {detail}"
    if context:
        text = f"{context}: {text}"
    error = cls(text)
    error.code, error.name, error.retriable = code, name, retriable
    return error


# code -> the kind of resource for kafka-acls
_RESOURCES: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
}


def denied(
    code: int, operation: str, resource: str = "", *, grant: str = "", is_prefix: bool = False
) -> str | None:
    """The ``advice`` for :func:`broker_error` after an authorization error; None for other codes.

    ``operation`` and ``resource`` are as in an ACL; a cluster has no name. ``grant``: the operation
    that the client needs next, and that implies the denied one (Read and Write imply Describe).
    ``is_prefix``: ``resource`` is the prefix of names that are used once each.
    """
    if code not in _RESOURCES:
        return None
    kind = _RESOURCES[code]
    if kind == "cluster":
        resource = ""
    what = f"the {kind} {resource!r}" if resource else f"the {kind}"
    flag = f"--{kind} {resource}".rstrip()
    prefixed = "--resource-pattern-type prefixed"
    if is_prefix:
        flag += f" {prefixed}"
    elif kind == "transactional-id":
        flag += f" (or a prefix of it, with {prefixed})"
    return (
        f"this client's principal may not {operation} on {what}; kafka-acls --add "
        f"--allow-principal User:... --operation {grant or operation} {flag} allows it"
    )
