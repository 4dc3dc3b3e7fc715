"""Describes and changes the configurations of topics and brokers (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from kafkaclient.admin.session import CONTROLLER, NOT_NOW
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.wire.admin import (
    ConfigEntry,
    ConfigKind,
    ConfigOperation,
    DescribeConfigsCall,
    IncrementalAlterConfigsCall,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.wire.admin import ConfigOutcome, DescribedConfigs

_TOPICS_PER_REQUEST = 500


class ConfigResource(NamedTuple):
    """The topic or broker that has the configuration."""

    kind: ConfigKind
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """The configuration of one topic."""
        return cls(ConfigKind.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> Self:
        """The configuration of one broker."""
        return cls(ConfigKind.BROKER, str(node_id))

    @classmethod
    def broker_defaults(cls) -> Self:
        """The cluster-wide defaults of all brokers."""
        return cls(ConfigKind.BROKER, "")

    @property
    def node_id(self) -> int | None:
        """The only broker that can answer for the resource; None if any broker can."""
        return int(self.name) if self.kind is ConfigKind.BROKER and self.name else None

    def __str__(self) -> str:
        if self.kind is ConfigKind.TOPIC:
            return f"topic {self.name!r}"
        return f"broker {self.name}" if self.name else "the defaults of all brokers"


class Configs:
    """The requests for configurations. Each runs within the time limit of the session."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def describe(
        self, resource: ConfigResource, keys: Iterable[str] | None = None
    ) -> dict[str, ConfigEntry]:
        """The entries by key, sorted. Raises the broker's error."""
        wanted = None if keys is None else tuple(keys)
        call = DescribeConfigsCall(((resource.kind, resource.name),), wanted)
        await self._check_broker(resource)
        result = await self._session.call(call, resource.node_id)
        (found,) = result.resources
        entries = _entries(resource, found)
        if isinstance(entries, KafkaError):
            raise entries
        return entries

    async def describe_topics(
        self, names: Sequence[str], keys: tuple[str, ...] | None = None
    ) -> dict[str, dict[str, ConfigEntry] | KafkaError]:
        """The entries of each topic, or its error."""
        found: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
        for at in range(0, len(names), _TOPICS_PER_REQUEST):
            some = names[at : at + _TOPICS_PER_REQUEST]
            call = DescribeConfigsCall(tuple((ConfigKind.TOPIC, name) for name in some), keys)
            for each in (await self._session.call(call)).resources:
                found[each.name] = _entries(ConfigResource.topic(each.name), each)
        return found

    async def alter(
        self,
        resource: ConfigResource,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - the operation's name
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Make all changes or none. Raises as :meth:`.Admin.alter_configs`."""
        changes = (
            *((key, ConfigOperation.SET, value) for key, value in (set or {}).items()),
            *((key, ConfigOperation.DELETE, None) for key in delete),
            *((key, ConfigOperation.APPEND, value) for key, value in (append or {}).items()),
            *((key, ConfigOperation.SUBTRACT, value) for key, value in (subtract or {}).items()),
        )
        keys = [key for key, _, _ in changes]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice or not keys:
            what = f"{', '.join(twice)} named twice" if twice else "no key to change is given"
            raise ConfigError(f"configuring {resource}: {what}")
        call = IncrementalAlterConfigsCall((resource.kind, resource.name), changes, validate_only)
        await self._check_broker(resource)
        node = CONTROLLER if resource.node_id is None else resource.node_id

        async def attempt() -> ConfigOutcome:
            (outcome,) = (await self._session.once(call, node)).resources
            if outcome.error_code in NOT_NOW:
                raise broker_error(outcome.error_code, f"configuring {resource}")
            return outcome

        outcome = await self._session.until_answered(attempt)
        if outcome.error_code:
            raise _error(resource, outcome.error_code, outcome.error_message, "configuring")

    async def _check_broker(self, resource: ConfigResource) -> None:
        node_id = resource.node_id
        if node_id is None:
            return
        brokers = [broker.node_id for broker in (await self._session.metadata(())).brokers]
        if node_id not in brokers:
            raise ConfigError(
                f"broker {node_id} is unknown or down; the brokers that are up are "
                f"{', '.join(map(str, sorted(brokers)))}"
            )


def _entries(
    resource: ConfigResource, found: DescribedConfigs
) -> dict[str, ConfigEntry] | KafkaError:
    if found.error_code:
        return _error(resource, found.error_code, found.error_message, "describing")
    return {entry.name: entry for entry in sorted(found.entries)}


def _error(resource: ConfigResource, code: int, detail: str | None, doing: str) -> KafkaError:
    operation = "DescribeConfigs" if doing == "describing" else "AlterConfigs"
    name = resource.name if resource.kind is ConfigKind.TOPIC else ""
    advice = denied(code, operation, name)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        advice = "there is no such topic"
    return broker_error(code, f"{doing} {resource}", detail, advice=advice)
