"""The dates of certificates, read off their DER and counted until they end."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cosyserve.metrics import names
from cosyserve.metrics.names import Metric
from cosyserve.tls.certificate_files import CurrentCertificates, Validity, validities
from tests.stacks.telemetry.scraping import reader
from tools.certificates import Authority, Folder

KEYS = (
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
    rsa.generate_private_key(65537, 2048),
)
DAY = 86_400


def certificate(key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime) -> bytes:
    """PEM of a self-signed one."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "speech " * 8)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
    signed = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
@pytest.mark.parametrize(
    ("begin", "end"), [(1950, 1968), (1969, 1999), (2000, 2049), (2026, 2050), (2050, 2068), (2069, 9999)]
)
def test_the_dates_are_those_of_the_certificate(key: ec.EllipticCurvePrivateKey, begin: int, end: int) -> None:
    dates = datetime(begin, 2, 28, 23, 59, 58), datetime(end, 12, 31, 23, 59, 59)
    (found,) = validities(b"a comment\n" + certificate(key, *dates))
    assert (found.begin, found.end) == tuple(date.replace(tzinfo=UTC).timestamp() for date in dates)


def test_every_certificate_of_a_file_is_read_and_another_thing_is_none() -> None:
    first, second = (certificate(KEYS[0], datetime(2020, 1, 1), datetime(year, 1, 1)) for year in (2030, 2025))
    assert [found.end for found in validities(first + second)] == sorted(
        (found.end for found in validities(second + first)), reverse=True
    )
    assert validities(b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n") == []


@pytest.mark.parametrize("cut", [0, 1, 40, 90, 120])
def test_what_is_no_certificate_is_refused(cut: int) -> None:
    lines = certificate(KEYS[0], datetime(2020, 1, 1), datetime(2030, 1, 1)).decode().splitlines()
    body = "".join(lines[1:-1])[: cut // 4 * 4]
    with pytest.raises(ValueError, match="dates"):
        validities(f"{lines[0]}\n{body}\n{lines[-1]}\n".encode())


def dates_of(metric: Metric, use: str) -> dict[str, float]:
    """By use: of one that no other test has, and of the CA beside it."""
    samples = [sample for sample in reader().scrape("llm").samples if sample.name == metric.prometheus]
    return {sample.labels["use"]: sample.value for sample in samples if sample.labels["use"] in (use, f"{use}_ca")}


def test_the_metrics_follow_the_files(tmp_path: Path) -> None:
    authority, other = Authority(), Authority()
    folder = Folder(tmp_path / "own").put(authority.issue(until_days=10, since_days=-1), authority.pem)
    certificates = CurrentCertificates(folder.files, "followed")
    ends, begins = (dates_of(metric, "followed") for metric in (names.CERTIFICATE_EXPIRY, names.CERTIFICATE_BEGIN))
    assert ends.keys() == begins.keys() == {"followed", "followed_ca"}
    assert ends["followed"] - begins["followed"] == pytest.approx(11 * DAY, abs=2)
    assert ends["followed_ca"] - ends["followed"] == pytest.approx(80 * DAY, abs=60)
    # No call has come that would have looked at the files.
    folder.put(other.issue(until_days=20), other.pem + authority.pem)
    renewed = dates_of(names.CERTIFICATE_EXPIRY, "followed")["followed"]
    assert renewed - ends["followed"] == pytest.approx(10 * DAY, abs=60)
    assert certificates.latest().own_validity == Validity(
        renewed, dates_of(names.CERTIFICATE_BEGIN, "followed")["followed"]
    )


def test_the_certificate_that_ends_first_counts_and_of_a_ca_the_last(tmp_path: Path) -> None:
    short, long = Authority(), Authority()
    pair = short.issue(until_days=30)
    folder = Folder(tmp_path / "own").put(pair, short.pem)
    intermediate = certificate(KEYS[0], datetime(2020, 1, 1), datetime(2021, 1, 1))
    folder.certificate.write_bytes(pair.certificate + intermediate)
    folder.ca.write_bytes(intermediate + long.pem)
    certificates = CurrentCertificates(folder.files, "chained")
    ends = dates_of(names.CERTIFICATE_EXPIRY, "chained")
    assert ends["chained"] == datetime(2021, 1, 1, tzinfo=UTC).timestamp()
    assert ends["chained_ca"] == validities(long.pem)[0].end
    assert certificates.latest().ca_validity == validities(long.pem)[0]
