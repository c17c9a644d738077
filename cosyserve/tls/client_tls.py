"""How a client uses TLS: whom it trusts, who it is, and what its server is called."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cosyserve.errors import SettingsError
from cosyserve.tls.certificate_files import CertificateFiles

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
