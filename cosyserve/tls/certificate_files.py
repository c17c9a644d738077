"""PEM files of a certificate, its key and a CA: read together, checked, and read again when they
change.

A file is replaced at any moment, and a certificate and its key are two files. So what was read
counts only if the files were the same before and after, and if OpenSSL takes it; otherwise the
certificates of before stay in use, and the log says why.

From when until when certificates are valid is read off their PEM, as Python's ssl has the dates of
a peer alone; the form is that of RFC 5280, section 4.1, in DER (X.690).
"""

import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.metrics import names
from cosyserve.metrics.instruments import Labels, gauge

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_FORMS = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""Of UTCTime and GeneralizedTime, which RFC 5280 wants to the second and in UTC."""
log = logging.getLogger(__name__)
Stamp = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, order=True)
class Validity:
    """Seconds since the epoch. The earlier end is the smaller one."""

    end: float
    begin: float


def validities(pem: bytes) -> list[Validity]:
    """Of each certificate of a PEM file, in its order. Raises ValueError for one that cannot be
    read.
    """
    return [_validity(ssl.PEM_cert_to_DER_cert(each.decode("ascii"))) for each in _PEM.findall(pem)]


def _validity(der: bytes) -> Validity:
    try:
        ((_, certificate),) = _elements(der)
        signed = [element for element in _elements(next(_elements(certificate))[1]) if element[0] != _VERSION]
        tag, validity = signed[3]  # behind the serial number, the algorithm and the issuer
        if tag != _SEQUENCE:
            raise ValueError(f"expected a sequence, found tag {tag}")
        begin, end = (_moment(kind, bytes(text)) for kind, text in _elements(validity))
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        raise ValueError("a certificate whose dates cannot be read") from error
    return Validity(end, begin)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element that stands in `der` one behind the other."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length


def _moment(kind: int, text: bytes) -> float:
    moment = datetime.strptime(text.decode("ascii"), _FORMS[kind]).replace(tzinfo=UTC)
    if kind == _UTC_TIME and moment.year >= 2050:  # two digits of 50 and more are of the century before
        moment = moment.replace(year=moment.year - 100)
    return moment.timestamp()


@dataclass(frozen=True)
class CertificateFiles:
    """Paths of PEM files; None: not used.

    certificate: our own certificate, followed by intermediate ones. key: its private key, without a
    passphrase. ca: the certificates that sign those of our peers.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def stamp(self) -> Stamp:
        """Changes whenever one of the files does."""
        return tuple(map(_stamp_of, (self.certificate, self.key, self.ca)))


@dataclass(frozen=True, eq=False)
class Certificates:
    """What the files contain, PEM; two readings are equal only if they are the same object."""

    certificate: bytes | None
    key: bytes | None
    ca: bytes | None
    context: ssl.SSLContext
    """The same for servers that are not gRPC's; with `ca`, callers need a certificate that it
    signed.
    """
    own_validity: Validity | None
    """Of `certificate` and the intermediate ones behind it: of that which ends first."""
    ca_validity: Validity | None
    """Of `ca`: of that which ends last; until then some peers are known."""


def read(files: CertificateFiles) -> Certificates:
    """The contents of the files. Raises SettingsError that names the file and says why it cannot be
    used: it is missing, is no PEM, or the key is that of another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key, ca = (None if path is None else _bytes_of(path) for path in _paths(files))
    if files.certificate is not None and files.key is not None:
        _check_pair(context, files.certificate, files.key)
    if files.ca is not None:
        _check_ca(context, files.ca, ca or b"")
        context.verify_mode = ssl.CERT_REQUIRED
        # A session that is resumed would not show its certificate again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    own_dates, ca_dates = (_dates(pem) for pem in (certificate, ca))
    return Certificates(certificate, key, ca, context, min(own_dates, default=None), max(ca_dates, default=None))


class CurrentCertificates:
    """The newest usable contents of the files, which are looked at whenever these are asked for.

    Threads may share it. The metrics say until when they are valid.
    """

    def __init__(self, files: CertificateFiles, use: str) -> None:
        """use: as the metrics name it, of `names.CERTIFICATE_USES`. Raises SettingsError as `read`:
        at the start there is nothing of before.
        """
        self.files, self._use = files, use
        self._lock = threading.Lock()
        self._stamp = files.stamp()
        self._current = read(files)
        gauge(names.CERTIFICATE_EXPIRY).watch(self, lambda each: each._dated(lambda validity: validity.end))
        gauge(names.CERTIFICATE_BEGIN).watch(self, lambda each: each._dated(lambda validity: validity.begin))

    def latest(self) -> Certificates:
        """Costs three calls of stat unless a file has changed. Blocks for a millisecond if one has;
        raises nothing.
        """
        with self._lock:
            stamp = self.files.stamp()
            if stamp == self._stamp:
                return self._current
            try:
                contents, problem = read(self.files), ""
            except SettingsError as error:
                contents, problem = self._current, str(error)
            if self.files.stamp() != stamp:  # still being written: looked at again the next time
                return self._current
            self._stamp = stamp
            if problem:
                log.error("the certificates of before stay in use: %s", problem)
            else:
                log.info("certificates have been read again: %s", ", ".join(map(str, filter(None, _paths(self.files)))))
                self._current = contents
            return self._current

    def _dated(self, date: Callable[[Validity], float]) -> list[tuple[Labels, float]]:
        latest = self.latest()
        dates = {self._use: latest.own_validity, f"{self._use}_ca": latest.ca_validity}
        return [({"use": use}, date(validity)) for use, validity in dates.items() if validity is not None]


def _paths(files: CertificateFiles) -> tuple[Path | None, ...]:
    return (files.certificate, files.key, files.ca)


def _stamp_of(path: Path | None) -> tuple[int, int, int, int] | None:
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _dates(pem: bytes | None) -> list[Validity]:
    """None of a file that OpenSSL reads and we do not: it is used all the same."""
    try:
        return validities(pem or b"")
    except ValueError as error:
        log.warning("until when it is valid is not known of %s", error)
        return []


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _check_pem(certificate, "CERTIFICATE-----", "a certificate")
    _check_pem(key, "PRIVATE KEY-----", "a private key")
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except _Encrypted:
        raise SettingsError(f"{key} has a passphrase; expected a key without one") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(f"{key} is not the key of the certificate in {certificate}") from error
        raise SettingsError(f"{certificate} and {key} cannot be used: {_reason(error)}") from error
    except OSError as error:
        raise SettingsError(f"{certificate} and {key} cannot be read: {error.strerror or error}") from error


def _check_ca(context: ssl.SSLContext, path: Path, contents: bytes) -> None:
    _check_pem(path, "CERTIFICATE-----", "a certificate")
    try:
        context.load_verify_locations(cadata=contents.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise SettingsError(f"{path} cannot be used as CA: {_reason(error)}") from error
    complete = contents.count(b"-----BEGIN CERTIFICATE-----")
    if contents.count(b"-----END CERTIFICATE-----") != complete:
        raise SettingsError(f"{path} is not complete: {complete} certificates begin in it and fewer end")


def _check_pem(path: Path, label: str, what: str) -> None:
    if label.encode() not in _bytes_of(path):
        raise SettingsError(f"{path} contains no {label.removesuffix('-----')} in PEM form; expected {what}")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class _Encrypted(Exception):
    """OpenSSL asked for a passphrase; without an answer it would ask the terminal."""


def _no_passphrase() -> str:
    raise _Encrypted
