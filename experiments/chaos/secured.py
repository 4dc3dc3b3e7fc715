"""Brokers and clients of a campaign that log in with Kerberos, over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.realm import Realm
from kafkaclient.testing import ClusterSecurity, SecureListener

if TYPE_CHECKING:
    from experiments.chaos.plan import Plan
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Secured"]

_SESSIONS_PER_TICKET = 3


class Secured(Realm):
    """In a ``with`` block: a realm for the brokers and workers that this process starts there.

    Connections through the proxies use TLS and GSSAPI. A ticket lasts for ``plan.kerberos``
    seconds, and a session for a third of that: then its connection must authenticate again.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(ticket_lifetime=f"{plan.kerberos:.0f}s")
        self._listener = SecureListener(
            "PROXIED",
            "SASL_SSL",
            mechanisms=("GSSAPI",),
            max_reauth_ms=int(plan.kerberos * 1000 / _SESSIONS_PER_TICKET),
        )

    @property
    def cluster_options(self) -> dict[str, Any]:
        """Arguments of LocalCluster."""
        return {
            "security": ClusterSecurity(listeners=(self._listener,)),
            "config": self.broker_config(self._listener),
        }

    def client_options(self, cluster: ClusterHandle) -> dict[str, str]:
        """The options of the clients."""
        return self.alice | {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(cluster.certificates / "ca.pem"),
        }
