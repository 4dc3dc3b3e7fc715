"""The ACLs and users of aiokafka's own tests, set through an admin client instead of Docker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Never
from unittest import SkipTest

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AclManager", "NoKerberos", "Users"]

_WITHIN_S = 10.0
_CRITICAL = 2  # otherwise librdkafka writes to stderr that the broker has stopped
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class AclManager:
    """``ACLManager`` of aiokafka's tests."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": _CRITICAL})
        self._active: list[AclBinding] = []

    def list_acl(self) -> list[AclBinding]:
        """All ACLs of the cluster."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return list(self._admin.describe_acls(every).result(_WITHIN_S))

    def add_acl(
        self,
        *,
        operation: str,
        allow_principal: str | None = None,
        deny_principal: str | None = None,
        cluster: bool = False,
        **resource: str,
    ) -> None:
        """Add an ACL, and wait until the broker applies it."""
        if cluster:
            kind, name = ResourceType.BROKER, "kafka-cluster"
        else:
            ((what, name),) = resource.items()
            kind = _TYPES[what]
        binding = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{allow_principal or deny_principal}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW if allow_principal else AclPermissionType.DENY,
        )
        self._active.append(binding)
        for done in self._admin.create_acls([binding]).values():
            done.result(_WITHIN_S)
        self._wait({binding}, present=True)

    def cleanup(self) -> None:
        """Delete the ACLs that were added."""
        active, self._active = self._active, []
        filters = [
            AclBindingFilter(
                binding.restype,
                binding.name,
                binding.resource_pattern_type,
                binding.principal,
                binding.host,
                binding.operation,
                binding.permission_type,
            )
            for binding in active
        ]
        if filters:
            for done in self._admin.delete_acls(filters).values():
                done.result(_WITHIN_S)
            self._wait(active, present=False)

    def _wait(self, bindings: Iterable[AclBinding], *, present: bool) -> None:
        until = time.monotonic() + _WITHIN_S
        while any((binding in self.list_acl()) != present for binding in bindings):
            if time.monotonic() > until:
                raise TimeoutError("the broker does not apply the ACLs")
            time.sleep(0.05)


class Users:
    """``KafkaConfig`` of aiokafka's tests: the cluster has its users from the start."""

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users

    def add_scram_user(self, username: str, password: str) -> None:
        assert self._users.get(username) == password


class NoKerberos:
    """``KerberosUtils`` of aiokafka's tests: skips each test that needs Kerberos."""

    def kinit(self, principal: str) -> Never:
        raise SkipTest(f"there is no Kerberos for {principal}")
