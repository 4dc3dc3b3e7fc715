"""The APIs that the fake cluster implements, in modules by subject.

To add an API: an :class:`~.api.Api` in ``APIS`` of a module here; a new module also goes into
``_MODULES`` below. ``wire/codec.py`` must know the message, or kafka-python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.apis import (
    admin,
    client_metrics,
    fetch,
    groups,
    metadata,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.apis.api import Api

__all__ = ["APIS"]

_MODULES = (admin, client_metrics, fetch, groups, metadata, produce)
APIS: Mapping[int, Api] = {api.key: api for module in _MODULES for api in module.APIS}
