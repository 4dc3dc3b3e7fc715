"""SASL GSSAPI: Kerberos tickets from a keytab or a ticket cache, and the exchange of RFC 4752.

libkrb5 does the work, through the package gssapi (extra ``gssapi``). It reads krb5.conf, and may
wait for a KDC: each call runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ConfigError,
    KafkaError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.net.mechanisms import SaslRefusedError
from kafkaclient.net.off_loop import OffLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions


_log = logging.getLogger(__name__)

_NO_LAYER = 1  # the only security layer that Kafka's brokers offer: none (RFC 4752, section 3.3)

# Failures that pass: the numbers of krb5_err.et, as unsigned 32-bit integers.
_KDC_UNREACHABLE = 0x96C73A9C
_KDC_UNRESOLVED = 0x96C73ADC
_KDC_UNAVAILABLE = 0x96C73A1D
_TICKET_EXPIRED = 0x96C73A20
_PASSING = frozenset({_KDC_UNREACHABLE, _KDC_UNRESOLVED, _KDC_UNAVAILABLE, _TICKET_EXPIRED})

_NO_CACHE = 0x96C73AC3  # also of a keytab that cannot be read, or lacks the principal
_CACHE_IS_BACK_SOON = frozenset({_NO_CACHE, 0x96C73AC7, 0x96C73A8D})  # away, cut short, empty

_LAST_SECONDS_S = 5.0  # with less left of a ticket, a login waits for a new one
_RETRIES = 20  # until the ticket ends, or fewer: see sasl.kerberos.min.time.before.relogin

_cache_numbers = count()


class GssApi:
    """A :class:`~kafkaclient.net.mechanisms.Mechanism` without a security layer. The broker proves
    that it has the service's key. ``first`` is the context's first token."""

    name: ClassVar[str] = "GSSAPI"
    computes: ClassVar[bool] = True

    def __init__(self, context: Any, first: bytes) -> None:
        self._context = context
        self._first = first
        self._chosen = False

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        import gssapi  # noqa: PLC0415

        try:
            return self._answer(challenge)
        except gssapi.exceptions.ExpiredContextError as error:
            raise BrokerConnectionError("the Kerberos ticket ended during a login") from error
        except gssapi.exceptions.GSSError as error:
            raise SaslRefusedError(
                f"the broker's message cannot be used: {_text(error)}"
            ) from error

    def _answer(self, challenge: bytes) -> bytes | None:
        context = self._context
        if self._chosen:
            return None
        if not context.complete:
            return context.step(challenge) or b""
        offer = context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise SaslRefusedError("the broker demands a security layer, which Kafka does not have")
        self._chosen = True
        # As Java: the principal itself is who this client wants to act as.
        choice = bytes((_NO_LAYER, 0, 0, 0)) + str(context.initiator_name).encode()
        return bytes(context.wrap(choice, False).message)


class _Ticket(NamedTuple):
    credentials: Any
    taken_at: float
    ends_at: float


class Tickets:
    """The Kerberos credentials of one client.

    A client logs in for its first connection, and again, in the background, at the first
    connection or re-authentication after ``sasl.kerberos.ticket.renew.window.factor`` of the
    ticket's life. If that fails, the ticket is used until it ends. ``wall_clock`` returns seconds
    since the epoch. Raises :class:`~kafkaclient.errors.ConfigError` if the package gssapi is
    missing, or the keytab cannot be read.
    """

    def __init__(
        self, options: SecurityOptions, wall_clock: Callable[[], float] = time.time
    ) -> None:
        try:
            import gssapi  # noqa: PLC0415
        except (ImportError, OSError) as error:  # OSError: libgssapi is missing
            raise ConfigError(
                'sasl_mechanism=GSSAPI needs Kerberos: pip install "kafkaclient[gssapi]", which '
                f"needs the system's Kerberos library and its headers ({error})"
            ) from error
        keytab = options.sasl_kerberos_keytab
        if keytab is not None and not os.access(keytab, os.R_OK):
            raise ConfigError(f"sasl_kerberos_keytab={keytab} does not exist or cannot be read")
        self._gssapi: Any = gssapi
        self._keytab = keytab
        self._cache = options.sasl_kerberos_ticket_cache
        self._principal = options.sasl_kerberos_principal
        self._service = options.sasl_kerberos_service_name
        self._domain = options.sasl_kerberos_domain_name
        self._used_share = options.sasl_kerberos_ticket_renew_window_factor
        self._pause_s = options.sasl_kerberos_min_time_before_relogin / 1000
        self._wall_clock = wall_clock
        self._off_loop: OffLoop[_Ticket] = OffLoop()
        self._renewal: asyncio.Future[_Ticket] | None = None
        """No task: a KDC that hangs does not keep the client's end waiting."""
        self._ticket: _Ticket | None = None
        self._had_ticket = False
        self._next_login = 0.0
        self._warned = False
        self.missing: str | None = None
        """Why there is no ticket, for messages; None if there is one, or none was asked for."""

    @property
    def source(self) -> str:
        """Where tickets come from, for messages."""
        if self._keytab is not None:
            return f"the keytab {self._keytab} for {self._principal}"
        return f"the ticket cache {self._cache or '(the default one)'}"

    async def mechanism(self, host: str) -> GssApi:
        """A mechanism for the broker at this host.

        Raises AuthenticationError if the KDC refuses, and BrokerConnectionError if a retry may
        help; that is so for every failed login after the first ticket.
        """
        ticket = await self._current()
        return await OffLoop[GssApi]().run(lambda: self._begin(ticket, self._domain or host))

    def refused(self) -> None:
        """A broker has refused a ticket, maybe because its keys are new: log in again, but not
        earlier than ``sasl.kerberos.min.time.before.relogin`` after the last login."""
        if self._ticket is not None:
            self._next_login = min(self._next_login, self._ticket.taken_at + self._pause_s)

    async def _current(self) -> _Ticket:
        """The present ticket while it is valid; if it is time for a new one, the client logs in
        meanwhile, so that a KDC that is away delays nothing."""
        ticket, now = self._ticket, self._wall_clock()
        if ticket is None or now >= ticket.ends_at:
            return await self._new_ticket()
        if now >= self._next_login:
            if self._renewal is None or self._renewal.done():
                self._renewal = self._off_loop.begin(self._login)
                self._renewal.add_done_callback(partial(self._renewed, ticket))
            left_s = ticket.ends_at - now
            if left_s < _LAST_SECONDS_S:  # an exchange must not outlive its ticket
                await asyncio.wait({self._renewal}, timeout=left_s / 2)
        return self._ticket or ticket

    async def _new_ticket(self) -> _Ticket:
        self.missing = self.missing or f"{self.source} has given no Kerberos ticket yet"
        try:
            return self._took(await self._off_loop.run(self._login))
        except KafkaError as error:
            self.missing = str(error)
            if not self._had_ticket:
                raise
            if self._ticket is not None:
                self._ticket, self._warned = None, False
            self._warn(error, "the last ticket has ended: no new connection can log in")
            raise BrokerConnectionError(self.missing) from error

    def _renewed(self, ticket: _Ticket, login: asyncio.Future[_Ticket]) -> None:
        try:
            self._took(login.result())
        except KafkaError as error:
            now, life_s = self._wall_clock(), ticket.ends_at - ticket.taken_at
            self._next_login = now + min(self._pause_s, life_s / _RETRIES)
            left_s = max(0.0, ticket.ends_at - now)
            self._warn(error, f"the present ticket is used for {left_s:.0f} s more")

    def _took(self, new: _Ticket) -> _Ticket:
        self._next_login = new.taken_at + self._used_share * (new.ends_at - new.taken_at)
        self._ticket, self._had_ticket, self._warned, self.missing = new, True, False, None
        return new

    def _warn(self, error: KafkaError, what_follows: str) -> None:
        """Once, until there is a new ticket or the present one ends."""
        if not self._warned:
            self._warned = True
            _log.warning("%s; %s", error, what_follows, extra=log_fields(error))

    # --- in a thread ---

    def _login(self) -> _Ticket:
        gssapi = self._gssapi
        store: dict[str, str] = {}
        if self._keytab is not None:
            # A cache of its own for each login: libkrb5 does not tell why it could not renew one.
            # It keeps them, of a few kilobytes, until the process ends.
            store["client_keytab"] = f"FILE:{self._keytab}"
            store["ccache"] = f"MEMORY:kafkaclient-{os.getpid()}-{next(_cache_numbers)}"
        elif self._cache is not None:
            store["ccache"] = self._cache
        now = self._wall_clock()
        try:
            name = self._principal and gssapi.Name(
                self._principal, gssapi.NameType.kerberos_principal
            )
            found = gssapi.Credentials(usage="initiate", name=name or None, store=store or None)
            life = found.lifetime
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error, f"no Kerberos ticket from {self.source}") from error
        return _Ticket(found, now, now + (math.inf if life is None else life))

    def _begin(self, ticket: _Ticket, host: str) -> GssApi:
        gssapi = self._gssapi
        flags = gssapi.RequirementFlag
        service = f"{self._service}@{host}"
        try:
            context = gssapi.SecurityContext(
                name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                creds=ticket.credentials,
                mech=gssapi.MechType.kerberos,
                flags=flags.mutual_authentication | flags.integrity,
                usage="initiate",
            )
            return GssApi(context, context.step() or b"")
        except gssapi.exceptions.GSSError as error:
            failure = self._failure(error, f"no Kerberos ticket for the service {service}")
            if error.min_code in _CACHE_IS_BACK_SOON:  # it had a ticket at the login
                failure = BrokerConnectionError(str(failure))
            raise failure from error

    def _failure(self, error: Any, what: str) -> KafkaError:
        text = f"{what}: {_text(error)}"
        if error.min_code == _NO_CACHE and self._keytab is not None:
            text = f"{what}: it has no key of this principal, or is no keytab"
        if error.min_code in _PASSING:
            return BrokerConnectionError(text)
        return AuthenticationError(text)


def _text(error: Any) -> str:
    """libkrb5's own words without those of GSS-API around them."""
    words = " ".join(error.get_all_statuses(error.min_code, False))
    return words if words not in ("", "Success") else str(error.__doc__ or error)
