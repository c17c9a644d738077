"""From when until when certificates are valid, read off their PEM: Python's ssl has the dates of
a peer alone. The form is that of RFC 5280, section 4.1, in DER (X.690).
"""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_FORMS = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""Of UTCTime and GeneralizedTime, which RFC 5280 wants to the second and in UTC."""


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
