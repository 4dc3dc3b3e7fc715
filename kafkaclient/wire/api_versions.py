"""ApiVersions: which versions of which APIs a broker supports (KIP-35)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import UnsupportedVersionError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The versions that one broker supports: API key -> (oldest version, newest version)."""

    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    throttle_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """The cluster's feature levels, such as ``transaction.version`` (KIP-584, version 3 on)."""

    @property
    def transactions_v2(self) -> bool:
        """Whether the cluster has the transactions of KIP-890."""
        return self.features.get("transaction.version", 0) >= 2

    def pick(self, api_key: ApiKey, min_version: int, max_version: int) -> int:
        """The newest version of the API that both sides support.

        Raises :class:`~kafkaclient.errors.UnsupportedVersionError` if there is none.
        """
        offered = self.ranges.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"the broker does not offer {api_key.name} at all")
        oldest, newest = offered
        version = newest if newest < max_version else max_version
        if version < oldest or version < min_version:
            raise UnsupportedVersionError(
                f"no common version of {api_key.name}: the broker supports {oldest} to {newest}, "
                f"this client {min_version} to {max_version}"
            )
        return version


@dataclass(frozen=True)
class ApiVersionsCall(CodecCall[ApiVersions], api_key=ApiKey.API_VERSIONS, versions=(0, 4)):
    """The first call on every connection.

    A broker that does not know the version of the request answers with UNSUPPORTED_VERSION in
    version 0 (KIP-511). That response is decoded as well.
    """

    software_name: str = "kafkaclient"
    software_version: str = "0"

    def _fields(self) -> dict[str, Any]:
        return {
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
        }

    def _result(self, message: Any) -> ApiVersions:
        ranges = {api.api_key: (api.min_version, api.max_version) for api in message.api_keys}
        features = {f.name: f.max_version_level for f in message.finalized_features or ()}
        return ApiVersions(message.error_code, ranges, message.throttle_time_ms or 0, features)
