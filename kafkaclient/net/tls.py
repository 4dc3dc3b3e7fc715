"""TLS contexts for the ``ssl`` options, from PEM files or text, and from PKCS12 files."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.config.security import SecurityOptions


_log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64


class TlsContexts:
    """The context for each new connection; a new context after a file has changed.

    If a changed file cannot be used, because it is incomplete or invalid, the previous context
    stays in use and a warning is logged. Raises :class:`~kafkaclient.errors.ConfigError` for files
    that cannot be used at the start.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self._options = options
        paths = (
            options.ssl_truststore_location,
            options.ssl_keystore_location,
            options.ssl_key_location,
        )
        self._paths = [path for path in paths if path is not None]
        self._seen = self._signatures()
        self._context = options.ssl_context or _build(options)

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Files are read only if their status has changed."""
        seen = self._signatures()
        if seen != self._seen:
            try:
                self._context = _build(self._options)
            except ConfigError as error:
                _log.warning("%s; the certificates read before stay in use", error)
            else:
                _log.info("certificates were read again: a file had changed")
            self._seen = seen
        return self._context

    def _signatures(self) -> list[tuple[int, int, int] | None]:
        return [_signature(path) for path in self._paths]


def https_context(options: SecurityOptions) -> ssl.SSLContext | None:
    """The context for the identity provider; None means the operating system's truststore.

    Raises :class:`~kafkaclient.errors.ConfigError` for certificates that cannot be read.
    """
    if options.https_ca_location is None and options.https_ca_pem is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    names = ("https_ca_location", "https_ca_pem")
    _trust_only(context, options.https_ca_location, options.https_ca_pem, names)
    return context


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()  # follows links: a new target is a change
    except (OSError, ValueError):  # ValueError: a null byte
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _build(options: SecurityOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host
    context.check_hostname = options.ssl_endpoint_identification_algorithm == "https"
    offered = [_VERSIONS[name] for name in options.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(offered), max(offered)
    # As in Java, every certificate in the truststore is trusted, even if it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, options)
    _identify(context, options)
    return context


def _trust(context: ssl.SSLContext, options: SecurityOptions) -> None:
    path, pem = options.ssl_truststore_location, options.ssl_truststore_certificates
    if path is None and pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        names = ("ssl_truststore_location", "ssl_truststore_certificates")
        _trust_only(context, path, pem, names, options.ssl_truststore_password)


def _trust_only(
    context: ssl.SSLContext,
    path: Path | None,
    pem: str | None,
    names: tuple[str, str],
    password: str | None = None,
) -> None:
    """``names``: the options for the path and for the text."""
    if path is None:
        where, text = names[1], pem or ""
    else:
        where, text = f"{names[0]}={path}", _read(path, names[0], password)
    certificates = [block for kind, block in _blocks(text) if kind.endswith("CERTIFICATE")]
    if not certificates:
        raise ConfigError(f"{where} holds no certificate in PEM{_instead(text)}")
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
    except ssl.SSLError as error:
        raise ConfigError(f"{where} holds a certificate that cannot be read: {error}") from error


def _identify(context: ssl.SSLContext, options: SecurityOptions) -> None:
    path = options.ssl_keystore_location
    if path is not None:
        where = f"ssl_keystore_location={path}"
        chain = key = _read(path, "ssl_keystore_location", options.ssl_keystore_password)
        if options.ssl_key_location is not None:
            where += f" with ssl_key_location={options.ssl_key_location}"
            key = _read(options.ssl_key_location, "ssl_key_location")
    elif options.ssl_keystore_certificate_chain is not None:
        where = "ssl_keystore_certificate_chain with ssl_keystore_key"
        chain, key = options.ssl_keystore_certificate_chain, options.ssl_keystore_key or ""
    else:
        return
    certificates = [text for kind, text in _blocks(chain) if kind.endswith("CERTIFICATE")]
    keys = [(kind, text) for kind, text in _blocks(key) if kind.endswith("PRIVATE KEY")]
    if not certificates:
        raise ConfigError(f"{where} holds no certificate in PEM{_instead(chain)}")
    if len(keys) != 1:
        raise ConfigError(f"{where} holds {len(keys)} private keys in PEM; one is needed")
    kind, text = keys[0]
    password = options.ssl_key_password
    if options.ssl_keystore_password and password not in (None, options.ssl_keystore_password):
        raise ConfigError(f"{where}: a PKCS12 file has one password, and ssl_key_password another")
    if password is None and ("ENCRYPTED" in kind or "Proc-Type: 4,ENCRYPTED" in text):
        raise ConfigError(f"{where}: the private key is encrypted; give ssl_key_password")
    try:
        with _as_file("\n".join([*certificates, text])) as file:
            # Without a password function OpenSSL would prompt at the terminal.
            context.load_cert_chain(file, password=lambda: password or "")
    except ssl.SSLError as error:
        raise ConfigError(_why_no_identity(where, error, password)) from error


def _why_no_identity(where: str, error: ssl.SSLError, password: str | None) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{where}: the private key does not belong to the first certificate"
    if password is not None:
        return (
            f"{where}: the private key cannot be read; ssl_key_password is wrong, or the key is "
            f"damaged ({error.reason or error})"
        )
    return f"{where}: certificate or private key cannot be read ({error.reason or error})"


def _read(path: Path, option: str, password: str | None = None) -> str:
    """The file's PEM text, or what a PKCS12 file has as PEM text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}={path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path with a null byte
        raise ConfigError(f"{option}={str(path)!r} cannot be read: {error}") from error
    where = f"{option}={path}"
    if content.startswith(_JKS):
        raise ConfigError(
            f"{where} is a Java keystore of type JKS or JCEKS; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {path.with_suffix('.p12')} -deststoretype PKCS12"
        )
    if content.startswith(_DER) and option in _STORES:
        return _pkcs12(content, where, option.replace("location", "password"), password)
    if password:
        raise ConfigError(
            f"{where} is a PEM file, which has no password of its own; the private key's is "
            "ssl_key_password"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not a PEM file") from error


def _pkcs12(content: bytes, where: str, option: str, password: str | None) -> str:
    """The certificates and the key, which never leave the memory. ``option`` is the password's."""
    try:
        from cryptography.hazmat.primitives import serialization as to  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f'{where} is a PKCS12 file, which needs cryptography: pip install "kafkaclient[pkcs12]"'
        ) from error
    try:
        store = pkcs12.load_pkcs12(content, (password or "").encode() or None)
    except ValueError as error:
        raise ConfigError(
            f"{where} is no PKCS12 file, or {option} is "
            f"{'missing' if password is None else 'wrong'}"
        ) from error
    parts = [each.certificate.public_bytes(to.Encoding.PEM) for each in store.additional_certs]
    if store.cert is not None:
        parts.insert(0, store.cert.certificate.public_bytes(to.Encoding.PEM))
    if store.key is not None:
        plain = (to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
        parts.append(store.key.private_bytes(*plain))
    return b"".join(parts).decode()


_STORES = ("ssl_truststore_location", "ssl_keystore_location")
_DER = b"\x30"  # no PEM file begins so: it would be the digit 0
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


def _instead(text: str) -> str:
    return "" if _BLOCK.search(text) else ": it is another format"


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The kind and text of each part of a PEM text. Missing line breaks, as in property files, are
    restored (Java's PEM reader does not need them)."""
    for match in _BLOCK.finditer(text):
        kind, body = match[1], match[2]
        if ":" not in body:  # headers are lines
            data = "".join(body.replace("\\n", "").split())
            lines = [data[at : at + _LINE] for at in range(0, len(data), _LINE)]
            body = "\n" + "\n".join(lines) + "\n"
        yield kind, f"-----BEGIN {kind}-----{body}-----END {kind}-----\n"


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path at which OpenSSL can read the text; in memory where the system supports it, so that a
    private key given as text is not written to a disk."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("kafkaclient-pem")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "identity.pem")
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")
        yield str(path)
