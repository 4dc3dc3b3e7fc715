"""A realm of Kerberos with a KDC of its own on 127.0.0.1, for experiments and tests."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections import Counter
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from kafkaclient.errors import ConfigError
from kafkaclient.testing.broker import free_ports

if TYPE_CHECKING:
    from kafkaclient.testing import SecureListener

__all__ = ["JAAS", "REALM", "Realm", "missing"]

REALM = "TEST.LOCAL"
JAAS = "com.sun.security.auth.module.Krb5LoginModule required"
"""The beginning of ``sasl.jaas.config``."""

_ALICE, _KAFKA, _BOB = (f"{name}@{REALM}" for name in ("alice", "kafka/127.0.0.1", "bob"))
_BOBS_PASSWORD = "bob-secret"  # noqa: S105 - of a realm that ends with the test


def missing() -> str | None:
    """What a realm needs and this machine does not have, as a sentence; None: nothing."""
    if not all(map(find_spec, ("gssapi", "k5test"))):
        return "gssapi or k5test is missing: make kerberos installs them"
    if not all(map(shutil.which, ("krb5kdc", "kadmin.local", "kinit"))):
        return "there is no KDC: apt-get install krb5-kdc krb5-admin-server krb5-user"
    return None


class Realm:
    """In a ``with`` block: a KDC with the principals alice and kafka/127.0.0.1, each with a keytab,
    and bob, who has a password. Brokers and clients that this process starts there use the realm.

    ``libdefaults`` are settings of krb5.conf, such as ``ticket_lifetime="60s"``. Raises ConfigError
    if this machine has no KDC.
    """

    def __init__(self, **libdefaults: str) -> None:
        if (problem := missing()) is not None:
            raise ConfigError(problem)
        (port,) = free_ports(1)
        # No name service: a broker's principal has the address that the client connects to.
        no_names = {"dns_canonicalize_hostname": "false", "rdns": "false"}
        self._krb5: dict[str, dict[str, Any]] = {
            "libdefaults": no_names | libdefaults,
            "realms": {REALM: {"kdc": f"127.0.0.1:{port}"}},
        }
        listen = {"kdc_listen": f"127.0.0.1:{port}", "kdc_tcp_listen": f"127.0.0.1:{port}"}
        with warnings.catch_warnings(action="ignore"):  # Python's, of its escape sequences
            k5test = import_module("k5test")
        self.k5: Any = k5test.K5Realm(
            realm=REALM,
            portbase=port,
            krb5_conf=self._krb5,
            kdc_conf={"realms": {REALM: {"kdc_ports": None, "kdc_tcp_ports": None, **listen}}},
            create_user=False,
            create_host=False,
            get_creds=False,
        )
        for name in ("alice", "kafka/127.0.0.1"):
            self.add(name, self.keytab(name))
        self.k5.addprinc(_BOB, _BOBS_PASSWORD)
        self._environment = ExitStack()

    def __enter__(self) -> Self:
        krb5_conf = self.k5.env["KRB5_CONFIG"]
        java = f"-Djava.security.krb5.conf={krb5_conf}"
        set_here = {"KRB5_CONFIG": krb5_conf, "JDK_JAVA_OPTIONS": java}
        self._environment.enter_context(patch.dict(os.environ, set_here))
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.close()
        self.k5.stop()

    def keytab(self, principal: str) -> Path:
        """The file with the keys of ``alice`` or ``kafka/127.0.0.1``."""
        return Path(self.k5.tmpdir, f"{re.split('[/@]', principal)[0]}.keytab")

    @property
    def alice(self) -> dict[str, str]:
        """The options of a client that logs in as alice."""
        return {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.keytab": str(self.keytab(_ALICE)),
            "sasl.kerberos.principal": _ALICE,
        }

    def broker_config(self, *listeners: SecureListener) -> dict[str, str]:
        """The settings of brokers for these listeners with GSSAPI."""
        jaas = (
            f"{JAAS} useKeyTab=true storeKey=true isInitiator=false "
            f'keyTab="{self.keytab(_KAFKA)}" principal="{_KAFKA}";'
        )
        names = (f"listener.name.{each.name.lower()}.gssapi" for each in listeners)
        logins = {f"{name}.sasl.jaas.config": jaas for name in names}
        return {"sasl.kerberos.service.name": "kafka", **logins}

    def add(self, principal: str, keytab: Path) -> str:
        """Another principal with a keytab; its full name."""
        name = f"{principal}@{REALM}"
        self.k5.addprinc(name)
        self.k5.extract_keytab(name, str(keytab))
        return name

    def kinit(self, cache: str, life: str = "1h") -> None:
        """Put a ticket for bob into a ticket cache."""
        self.k5.kinit(_BOB, _BOBS_PASSWORD, ["-c", cache, "-l", life])

    def logins(self) -> int:
        """How many tickets the KDC has issued that are no service's."""
        return len(re.findall(r"AS_REQ .* ISSUE", self._log()))

    def served(self) -> Counter[str]:
        """How many tickets for the brokers the KDC has issued, by principal."""
        return Counter(re.findall(r"TGS_REQ .* ISSUE: .* (\w+)@\S+ for kafka/", self._log()))

    def _log(self) -> str:
        return Path(self.k5.tmpdir, "kdc.log").read_text("utf-8")

    def config(self, **libdefaults: str) -> str:
        """The path of another krb5.conf."""
        changed = {**self._krb5, "libdefaults": {**self._krb5["libdefaults"], **libdefaults}}
        environment = self.k5.special_env("-".join(libdefaults.values()), False, changed)
        return str(environment["KRB5_CONFIG"])
