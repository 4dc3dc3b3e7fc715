"""Where telemetry goes: a folder, a URI or a topic. Secrets in a URI are never shown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from kafkaclient.config.kinds import Kind
from kafkaclient.topic_names import check_topic_name

_HIDDEN = "[hidden]"
_TOPIC = "topic:"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_ONE_SLASH = re.compile(r"[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE)  # a mistaken URI, such as s3:/b
_CONTAINER_BEFORE_AT = ("abfs", "abfss", "wasb", "wasbs", "adl")
"""Schemes in whose URIs a container, which is no secret, comes before the ``@``."""


@dataclass(frozen=True, slots=True, repr=False)
class TelemetryTarget:
    """A checked value of the option ``telemetry``. ``str()`` and ``repr()`` hide the user, the
    password and the query of a URI; ``text`` has them."""

    text: str

    @property
    def topic(self) -> str | None:
        """The name in ``topic:NAME``; None for all other targets."""
        return self.text[len(_TOPIC) :] if self.text.lower().startswith(_TOPIC) else None

    @property
    def scheme(self) -> str:
        """The scheme of a URI; empty for a path or a topic."""
        match = _SCHEME.match(self.text)
        return match[1].lower() if match else ""

    @property
    def uri(self) -> str:
        """The URI as pyarrow and fsspec know it: with the scheme in lower case."""
        return self.scheme + self.text[len(self.scheme) :]

    def __str__(self) -> str:
        if not self.scheme:
            return self.text
        whole, query = self._split()
        return f"{self._masked(whole)}?{_HIDDEN}" if query else self._masked(whole)

    def _masked(self, whole: str) -> str:
        """The URI without its query, and without secrets."""
        start, at, rest = whole.rpartition("@")
        if at:
            user, colon, _ = start.partition("://")[2].partition(":")
            shown = user if self.scheme in _CONTAINER_BEFORE_AT else _HIDDEN
            password = f":{_HIDDEN}" if colon and shown is user else ""
            whole = f"{self.scheme}://{shown}{password}@{rest}"
        return whole

    def __repr__(self) -> str:
        return repr(str(self))

    def hide(self, text: str) -> str:
        """The text of an error without the secrets of this URI."""
        if not self.scheme:
            return text
        whole, query = self._split()
        user, _, password = whole.rpartition("@")[0].partition("://")[2].partition(":")
        shown = {self.text: str(self), self.uri: str(self), whole: self._masked(whole)}
        secrets = [*shown, query, password]
        if self.scheme not in _CONTAINER_BEFORE_AT:
            secrets.append(user)
        secrets += (value for pair in query.split("&") for value in pair.partition("=")[2:])
        for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
            if len(secret) > 3:  # a shorter one is part of many words
                text = text.replace(secret, shown.get(secret, _HIDDEN))
        return text

    def _split(self) -> tuple[str, str]:
        whole, _, query = self.text.partition("?")
        return whole, query


def _read(value: object) -> TelemetryTarget:
    if isinstance(value, TelemetryTarget):
        return value
    text = os.fspath(value)  # type: ignore[call-overload]  # refuses everything else
    if not isinstance(text, str):
        raise TypeError(value)
    target = TelemetryTarget(text.strip())
    if not target.text or _ONE_SLASH.match(target.text):
        raise ValueError(value)
    if target.topic is not None:
        check_topic_name(target.topic)
    return target


TELEMETRY_TARGET = Kind("a path, a URI such as s3://bucket/folder, or topic:NAME", _read)
