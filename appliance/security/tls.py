"""TLS contexts from Kafka's configs: keys and certificates in PEM, from files or from the configs themselves.

A context is made anew when one of its files has changed; connections that exist go on with what they have. A file that
cannot be used leaves the context as it was, with one line in the log.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError

_log = logging.getLogger(__name__)

PEM = "PEM"
_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What the configs of one listener, or of a client, say about TLS."""

    listener: str
    """For messages."""
    keystore: str | None
    key: str | None
    chain: str | None
    key_password: str | None
    truststore: str | None
    trusted: str | None
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    identify: bool
    """Whether the name of the other side is checked, where this is the client."""

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Changes whenever a file is another one. Raises: OSError."""
        found = [Path(path).stat() for path in (self.keystore, self.truststore) if path]
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)

    def server_context(self) -> ssl.SSLContext:
        """Raises: UserError when keys or certificates cannot be used."""
        if not self.keystore and not self.key:
            raise UserError(f"{self.listener}: TLS needs ssl.keystore.location, or ssl.keystore.key and its chain")
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _CLIENT_AUTH[self.client_auth]
        context.num_tickets = 2
        return context

    def client_context(self) -> ssl.SSLContext:
        """Raises: UserError when keys or certificates cannot be used."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.identify
        context.verify_mode = ssl.CERT_REQUIRED
        if not self.truststore and not self.trusted:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context

    def _context(self, kind: int) -> ssl.SSLContext:
        context = ssl.SSLContext(kind)
        known = [_VERSIONS[name] for name in self.protocols if name in _VERSIONS]
        if not known:
            raise UserError(f"{self.listener}: ssl.enabled.protocols names no version of TLS that is known")
        context.minimum_version, context.maximum_version = min(known), max(known)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        try:
            if self.cipher_suites:
                # Those of TLS 1.3 cannot be chosen one by one; they are all sound.
                named = [_openssl_name(suite) for suite in self.cipher_suites]
                older = [suite for suite in named if not suite.startswith("TLS_")]
                if older:
                    context.set_ciphers(":".join(older))
            self._load(context)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UserError(f"{self.listener}: TLS keys or certificates cannot be used: {_reason(error)}") from error
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        password = self.key_password or _no_password
        if self.key:
            with ExitStack() as stack:
                # OpenSSL reads keys from files only.
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="appliance-tls-")))
                path = folder / "key.pem"
                path.touch(mode=0o600)
                path.write_text(f"{_lines(self.key)}\n{_lines(self.chain or '')}\n")
                context.load_cert_chain(path, password=password)
        elif self.keystore:
            context.load_cert_chain(self.keystore, password=password)
        if self.trusted:
            context.load_verify_locations(cadata=_lines(self.trusted))
        elif self.truststore:
            context.load_verify_locations(self.truststore)


def _no_password() -> str:
    raise ValueError("the key has a password; set ssl.key.password")


def _lines(pem: str) -> str:
    """PEM in a config may stand in one line, with blanks where lines ended."""
    if "\n" in pem.strip():
        return pem
    parts = pem.split("-----")
    for at in range(2, len(parts), 4):
        parts[at] = "\n" + "\n".join(parts[at].split()) + "\n"
    return "-----".join(parts).replace("----- -----", "-----\n-----")


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 to OpenSSL."""
    if "_WITH_" not in suite:
        return suite
    name = suite.removeprefix("TLS_").removeprefix("RSA_WITH_").replace("_WITH_", "-").replace("AES_", "AES")
    return name.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")


def _reason(error: Exception) -> str:
    # An SSLError of Python's own making has no reason.
    return getattr(error, "reason", None) or str(error)


def tls_files(config: BrokerConfig, listener: str) -> TlsFiles:
    """What a listener's configs say.

    Raises:
        UserError: a keystore of a kind that is not read here.
    """

    def value(name: str) -> str | None:
        found: str | None = config.get_for(listener, name)
        return found

    for key, location in (
        ("ssl.keystore.type", "ssl.keystore.location"),
        ("ssl.truststore.type", "ssl.truststore.location"),
    ):
        kind = value(key) or ""
        if value(location) and kind.upper() != PEM:
            raise UserError(f"listener {listener}: {key} is {kind}; PEM is what can be read here")
    return TlsFiles(
        listener=f"listener {listener}",
        keystore=value("ssl.keystore.location"),
        key=value("ssl.keystore.key"),
        chain=value("ssl.keystore.certificate.chain"),
        key_password=value("ssl.key.password"),
        truststore=value("ssl.truststore.location"),
        trusted=value("ssl.truststore.certificates"),
        client_auth=value("ssl.client.auth") or "none",
        protocols=config.get_for(listener, "ssl.enabled.protocols"),
        cipher_suites=config.get_for(listener, "ssl.cipher.suites"),
        identify=(value("ssl.endpoint.identification.algorithm") or "").lower() == "https",
    )


class ReloadingContext:
    """The context for new connections.

    Raises:
        UserError: the first one cannot be made.
    """

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        self._files = files
        self._make = make
        self._stamp = _stamp_of(files)
        self.context = make(files)

    def reload_if_changed(self) -> bool:
        """Look at the files; blocks, for a helper thread. Returns whether there is a new context."""
        stamp = _stamp_of(self._files)
        if stamp is None or stamp == self._stamp:
            return False
        # Before it is read: whoever writes on while we read is noticed at the next look.
        self._stamp = stamp
        try:
            self.context = self._make(self._files)
        except UserError as error:
            _log.error("%s; the old ones stay in use", error)
            return False
        _log.info("%s: keys and certificates were read again", self._files.listener)
        return True


def _stamp_of(files: TlsFiles) -> tuple[tuple[int, int, int], ...] | None:
    """None while a file is away: it is being replaced."""
    try:
        return files.stamp()
    except OSError:
        return None
