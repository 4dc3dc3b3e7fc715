"""DescribeConfigs (32) and IncrementalAlterConfigs (44): settings of topics and brokers.

Behavior
    Topics and brokers have :data:`DEFAULTS` and the keys that were set. Topics refuse unknown keys.
    Brokers accept any key, but return only the name of an unknown key, not its value. A broker
    answers for itself and for the defaults of all brokers (the name ``""``). Another broker's id
    gets INVALID_REQUEST, and so does a key named twice. Appending an element that the list has
    changes nothing.

Versions
    DescribeConfigs 1 to 4, IncrementalAlterConfigs 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Parts, each
from kafkaclient.testing.fake.log import ErrorCode, RefusedError
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TOPIC_SOURCE, _BROKER_SOURCE, _ALL_BROKERS_SOURCE, _DEFAULT_SOURCE = 1, 2, 3, 5

DEFAULTS: Mapping[int, Mapping[str, str]] = {
    _TOPIC: {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
        "max.message.bytes": "1048588",
        "min.insync.replicas": "1",
        "retention.ms": "604800000",
    },
    _BROKER: {"log.cleaner.threads": "1", "num.partitions": "1"},
}

_RATES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Known keys of brokers without a default value."""


def _own(state: ClusterState, request: Request, resource: Any) -> dict[str, str]:
    """The resource's own configuration."""
    name = resource.resource_name
    if resource.resource_type == _TOPIC:
        if name not in state.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return state.topics[name].configs
    if name not in ("", str(request.broker)):
        problem = f"Unexpected broker id, expected {request.broker} or empty string, but received"
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{problem} {name}")
    return state.broker_configs.setdefault(name, {})


def _describe(state: ClusterState, request: Request, resource: Any) -> Fields:
    own, keys = _own(state, request, resource), resource.configuration_keys
    kind, name = resource.resource_type, resource.resource_name
    entries: dict[str, tuple[str, int]] = {}
    if kind == _TOPIC or name:
        defaults = DEFAULTS[kind]
        entries = {key: (value, _DEFAULT_SOURCE) for key, value in defaults.items()}
    everywhere = state.broker_configs.get("", {})
    shown = everywhere if kind == _BROKER else {k: v for k, v in everywhere.items() if k in entries}
    entries |= {key: (value, _ALL_BROKERS_SOURCE) for key, value in shown.items()}
    if kind == _TOPIC or name:
        source = _TOPIC_SOURCE if kind == _TOPIC else _BROKER_SOURCE
        entries |= {key: (value, source) for key, value in own.items()}
    configs = [
        {"name": key, "config_source": source, **_shown(kind, key, value)}
        for key, (value, source) in entries.items()
        if keys is None or key in keys
    ]
    return {"configs": configs}


def _shown(kind: int, key: str, value: str) -> Fields:
    hidden = key not in DEFAULTS[kind] and key not in _RATES
    return {"value": None if hidden else value, "read_only": hidden, "is_sensitive": hidden}


def _alter(state: ClusterState, request: Request, resource: Any) -> Fields:
    own = _own(state, request, resource)
    names = [change.name for change in resource.configs]
    if len(set(names)) < len(names):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changed = dict(own)
    for change in resource.configs:
        known = change.name in DEFAULTS[_TOPIC]
        if change.config_operation == _DELETE:
            changed.pop(change.name, None)
        elif resource.resource_type == _TOPIC and not known:
            unknown = f"Unknown topic config name: {change.name}"
            raise RefusedError(ErrorCode.INVALID_CONFIG, unknown)
        elif change.config_operation == _SET:
            changed[change.name] = change.value
        else:
            old = [element for element in changed.get(change.name, "").split(",") if element]
            given = change.value.split(",")
            if change.config_operation == _APPEND:
                new = list(dict.fromkeys([*old, *given]))
            else:
                new = [element for element in old if element not in given]
            changed[change.name] = ",".join(new)
    if not request.message.validate_only:
        own.clear()
        own.update(changed)
    return {}


_IDENTITY = {"resource_type": "resource_type", "resource_name": "resource_name"}

APIS = (
    each(ApiKey.DESCRIBE_CONFIGS, (1, 4), Parts("resources", "results", _IDENTITY), _describe),
    each(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), Parts("resources", "responses", _IDENTITY), _alter
    ),
)
