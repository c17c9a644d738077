"""A certification authority for trying TLS: `python -m tools.certificates DIR [NAME ...]` makes one
and writes a certificate that it signs, as a Secret of cert-manager has it.

DIR gets tls.crt, tls.key and ca.crt. NAME: DNS names, addresses and URIs that the certificate is
for; by default this host. The key of the authority is not kept: for real use, let cert-manager or
another authority sign.
"""

import argparse
import datetime
import ipaddress
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cosyserve.tls.certificate_files import CertificateFiles

HERE = ("localhost", "127.0.0.1")
_VALID_DAYS = 90.0


@dataclass(frozen=True)
class Pair:
    """PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Folder:
    """Files as a Secret of cert-manager has them."""

    path: Path

    @property
    def certificate(self) -> Path:
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        return self.path / "tls.key"

    @property
    def ca(self) -> Path:
        return self.path / "ca.crt"

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(self.certificate, self.key, self.ca)

    def put(self, pair: Pair, ca: bytes) -> "Folder":
        """Write the files, one after the other, each of them at once."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(self.certificate, pair.certificate)
        replace(self.key, pair.key)
        replace(self.ca, ca)
        return self


class Authority:
    """A self-signed CA with a key of its own."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            _builder(self._name, self._name, self._key, _days(-1), _days(_VALID_DAYS))
            .add_extension(constraints, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        names: Sequence[str] = HERE,
        *,
        common_name: str = "leaf",
        until_days: float = 1.0,
        since_days: float = -1.0,
    ) -> Pair:
        """A certificate and its key. names: DNS names, addresses and URIs. days: from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name), self._name, key, _days(since_days), _days(until_days))
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        # Authorities of one name differ in their keys.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)


def replace(path: Path, contents: bytes) -> None:
    """As a reader sees it, at once; no other user may read it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(contents)
    fresh.rename(path)


def _days(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    since: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.certificates", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", default=HERE, metavar="NAME")
    parser.add_argument(
        "--callers",
        nargs="*",
        default=(),
        metavar="NAME",
        help="a certificate for each, in a folder of DIR that has the last part of NAME",
    )
    parser.add_argument("--days", type=float, default=_VALID_DAYS, help="of validity (default: %(default)g)")
    options = parser.parse_args(arguments)
    authority = Authority("cosyserve trial")
    written = {options.folder: options.names}
    written |= {options.folder / name.rstrip("/").rpartition("/")[2]: (name,) for name in options.callers}
    for path, names in written.items():
        Folder(path).put(authority.issue(tuple(names), until_days=options.days), authority.pem)
        print(f"{path}: tls.crt for {', '.join(names)}; tls.key, ca.crt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
