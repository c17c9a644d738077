"""How TLS is set: by the environment of a client (whom it trusts, who it is, what its server is
called), and by the settings that services share (how they are called, and how they call others).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cosyserve.errors import SettingsError
from cosyserve.tls.certificate_files import CertificateFiles
from cosyserve.tls.peer_names import check_form

USE, CA, CERTIFICATE, KEY, NAME = (f"COSYSERVE_TLS{end}" for end in ("", "_CA", "_CERTIFICATE", "_KEY", "_NAME"))
VARIABLES = (USE, CA, CERTIFICATE, KEY, NAME)
"""Environment of clients. The first one is 1 or 0; each of the others implies 1."""


@dataclass(frozen=True)
class ClientTls:
    """The files are PEM and are read again when they change."""

    ca: str | Path | None = None
    """CA certificates that sign that of the server; None: public CAs, as grpcio brings them."""
    certificate: str | Path | None = None
    """Client certificate, followed by intermediate ones, for a server that asks for one."""
    key: str | Path | None = None
    """Private key of `certificate`, without a passphrase."""
    name: str = ""
    """DNS name that the certificate of the server must have; empty: the host of its address."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("a client certificate and its key are needed together")

    @property
    def files(self) -> CertificateFiles:
        """The paths."""
        return CertificateFiles(
            *(None if path is None else Path(path) for path in (self.certificate, self.key, self.ca))
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """As `VARIABLES` say; None: plaintext. Raises SettingsError."""
        given = {name: environ.get(name) or None for name in VARIABLES}
        if (use := given[USE]) not in (None, "0", "1"):
            raise SettingsError(f"{USE} is {use!r}, expected 1 or 0")
        if use == "0" or not any(given.values()):
            return None
        return cls(given[CA], given[CERTIFICATE], given[KEY], given[NAME] or "")


@dataclass(frozen=True, kw_only=True)
class ServedTlsSettings:
    """How a service is called."""

    tls_certificate: Path | None = None
    """PEM file of the certificate of this service, followed by intermediate ones; read again when
    it changes. Unset: the port is plaintext.
    """
    tls_key: Path | None = None
    """PEM file of the private key of tls_certificate, without a passphrase."""
    tls_client_ca: Path | None = None
    """PEM file of the CA certificates that sign those of callers. Set: a caller without such a
    certificate gets no connection (mTLS).
    """
    tls_client_names: tuple[str, ...] = ()
    """Names of which the certificate of a caller must have one: URIs such as
    spiffe://example.org/orchestrator, or DNS names. Others get PERMISSION_DENIED, or 403 over HTTP.
    None: any certificate that tls_client_ca signed.
    """
    health_listen: str = ""
    """host:port for probes and scrapers, in plain HTTP without keys: /healthz, /readyz and
    /metrics; port 0 takes a free one. Empty: not served.
    """

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            missing, given = ("tls_key", "tls_certificate") if self.tls_key is None else ("tls_certificate", "tls_key")
            raise ValueError(f"{given} is set and {missing} is not; both are needed")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca is set and tls_certificate is not; client certificates need TLS")
        if self.tls_client_names and self.tls_client_ca is None:
            raise ValueError("tls_client_names is set and tls_client_ca is not; only signed names count")
        check_form(self.tls_client_names)
        host, _, port = self.health_listen.rpartition(":")
        if self.health_listen and (not host or not port.isdecimal() or int(port) > 65_535):
            raise ValueError(f"health_listen is {self.health_listen!r}, which is not host:port")

    @property
    def served_files(self) -> CertificateFiles | None:
        """The files of the server; None: plaintext."""
        if self.tls_certificate is None:
            return None
        return CertificateFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)


@dataclass(frozen=True, kw_only=True)
class CallingTlsSettings:
    """How a service calls those behind it."""

    calls_tls: bool = False
    """Whether calls to the services behind this one use TLS; one of the other calls_ settings
    implies it.
    """
    calls_ca: Path | None = None
    """PEM file of the CA certificates that sign those of the called services. Unset: public CAs."""
    calls_certificate: Path | None = None
    """PEM file of the client certificate of this service, for mTLS."""
    calls_key: Path | None = None
    """PEM file of the private key of calls_certificate."""
    calls_name: str = ""
    """DNS name that the certificates of the called services must have. Empty: the host of their
    address.
    """

    def __post_init__(self) -> None:
        if (self.calls_certificate is None) != (self.calls_key is None):
            missing = "calls_key" if self.calls_key is None else "calls_certificate"
            raise ValueError(f"calls_certificate and calls_key are needed together; {missing} is not set")

    @property
    def calls(self) -> ClientTls | None:
        """None: plaintext."""
        if self.calls_tls or self.calls_ca or self.calls_certificate or self.calls_name:
            return ClientTls(self.calls_ca, self.calls_certificate, self.calls_key, self.calls_name)
        return None
