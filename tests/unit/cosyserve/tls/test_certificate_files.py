"""Certificate files: what is wrong with them is said by file, and the last usable ones stay."""

import logging
from dataclasses import replace as with_fields
from pathlib import Path

import pytest

from cosyserve.errors import PermissionDenied, SettingsError
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.settings import load
from cosyserve.tls.certificate_files import CertificateFiles, CurrentCertificates, read
from cosyserve.tls.peer_names import names_of_certificate, names_of_grpc, require_allowed
from cosyserve.tls.settings import ClientTls
from tests.stacks.certificates import Authority, Folder, encrypted, replace

AUTHORITY = Authority()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "tls").put(AUTHORITY.issue(), AUTHORITY.pem)


def test_what_is_right_is_read(folder: Folder) -> None:
    contents = read(folder.files)
    assert contents.certificate == folder.certificate.read_bytes()
    assert contents.key == folder.key.read_bytes()
    assert contents.ca == AUTHORITY.pem
    assert read(CertificateFiles(ca=folder.ca)).certificate is None


@pytest.mark.parametrize(
    ("file", "contents", "complaint"),
    [
        ("tls.crt", None, r"tls\.crt cannot be read: No such file or directory"),
        ("tls.key", None, r"tls\.key cannot be read: No such file or directory"),
        ("ca.crt", None, r"ca\.crt cannot be read: No such file or directory"),
        ("tls.crt", b"", r"tls\.crt contains no CERTIFICATE in PEM form; expected a certificate"),
        ("tls.key", b"", r"tls\.key contains no PRIVATE KEY in PEM form; expected a private key"),
        ("ca.crt", b"key", r"ca\.crt contains no CERTIFICATE in PEM form; expected a certificate"),
        ("tls.crt", b"-----BEGIN CERTIFICATE-----\nMIIB\n", r"tls\.crt and \S*tls\.key cannot be used: "),
        ("ca.crt", AUTHORITY.pem + AUTHORITY.pem[:200], r"ca\.crt (is not complete|cannot be used as CA)"),
        ("tls.key", AUTHORITY.issue().key, r"tls\.key is not the key of the certificate in \S*tls\.crt"),
        ("tls.key", encrypted(AUTHORITY.issue()), r"tls\.key has a passphrase; expected a key without one"),
    ],
)
def test_what_is_wrong_is_said_by_file(folder: Folder, file: str, contents: bytes | None, complaint: str) -> None:
    path = folder.path / file
    path.unlink() if contents is None else path.write_bytes(contents)
    with pytest.raises(SettingsError, match=complaint):
        CurrentCertificates(folder.files, "served")


def test_the_newest_usable_ones_are_used(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    certificates = CurrentCertificates(folder.files, "served")
    first = certificates.latest()
    assert certificates.latest() is first
    fresh = AUTHORITY.issue()
    replace(folder.key, fresh.key)
    assert certificates.latest() is first
    assert "tls.key is not the key of the certificate in" in caplog.text
    messages = len(caplog.records)
    assert certificates.latest() is first
    assert len(caplog.records) == messages, "said once"
    replace(folder.certificate, fresh.certificate)
    second = certificates.latest()
    assert second is not first
    assert (second.certificate, second.key) == (fresh.certificate, fresh.key)
    assert "have been read again" in caplog.text
    assert "PRIVATE" not in caplog.text


def test_the_links_of_a_mounted_secret_are_followed(tmp_path: Path) -> None:
    """A kubelet exchanges a link to a folder, and no file changes its own name."""
    for name in ("first", "second"):
        Folder(tmp_path / name).put(AUTHORITY.issue(), AUTHORITY.pem)
    (tmp_path / "..data").symlink_to("first")
    mounted = Folder(tmp_path)
    for path in (mounted.certificate, mounted.key, mounted.ca):
        path.symlink_to(Path("..data") / path.name)
    certificates = CurrentCertificates(mounted.files, "served")
    (tmp_path / "..new").symlink_to("second")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert certificates.latest().certificate == (tmp_path / "second" / "tls.crt").read_bytes()


SETTINGS = ServerSettings(listen="127.0.0.1:0")
GIVEN = {"tls_certificate": Path("c"), "tls_key": Path("k"), "tls_client_ca": Path("a")}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"tls_certificate": Path("c")}, "tls_certificate is set and tls_key is not"),
        ({"tls_key": Path("k")}, "tls_key is set and tls_certificate is not"),
        ({"tls_client_ca": Path("a")}, "tls_client_ca is set and tls_certificate is not"),
        ({"tls_client_names": ("a.example",)}, "tls_client_names is set and tls_client_ca is not"),
        ({**GIVEN, "tls_client_names": ("a b",)}, "tls_client_names has 'a b'; expected a URI"),
        ({"health_listen": "8081"}, "health_listen is '8081', which is not host:port"),
        ({"local_listen": "127.0.0.1:1"}, "local_listen is '127.0.0.1:1', expected unix:/path"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        with_fields(SETTINGS, **given)  # type: ignore[arg-type]


def test_settings_come_from_the_environment() -> None:
    environ = {
        "COSYSERVE_X_LISTEN": "127.0.0.1:0",
        "COSYSERVE_X_TLS_CERTIFICATE": "/c",
        "COSYSERVE_X_TLS_KEY": "/k",
        "COSYSERVE_X_TLS_CLIENT_CA": "/a",
        "COSYSERVE_X_TLS_CLIENT_NAMES": "spiffe://example.org/a, b.example",
    }
    settings = load(ServerSettings, "COSYSERVE_X_", environ)
    assert settings.served_files == CertificateFiles(Path("/c"), Path("/k"), Path("/a"))
    assert settings.tls_client_names == ("spiffe://example.org/a", "b.example")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"COSYSERVE_TLS": "1"}, ClientTls()),
        ({"COSYSERVE_TLS": "0", "COSYSERVE_TLS_CA": "a"}, None),
        ({"COSYSERVE_TLS_CA": "a"}, ClientTls("a")),
        ({"COSYSERVE_TLS_NAME": "n"}, ClientTls(name="n")),
        ({"COSYSERVE_TLS_CERTIFICATE": "c", "COSYSERVE_TLS_KEY": "k"}, ClientTls(None, "c", "k")),
    ],
)
def test_a_client_has_its_tls_from_the_environment(environ: dict[str, str], expected: ClientTls | None) -> None:
    assert ClientTls.from_environment(environ) == expected


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"COSYSERVE_TLS": "maybe"}, "COSYSERVE_TLS is 'maybe', expected 1 or 0"),
        ({"COSYSERVE_TLS_KEY": "k"}, "a client certificate and its key are needed together"),
    ],
)
def test_a_client_refuses_what_it_cannot_use(environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        ClientTls.from_environment(environ)


@pytest.mark.parametrize(
    ("names", "allowed", "welcome"),
    [
        ({"spiffe://a/b"}, ("spiffe://a/b",), True),
        ({"spiffe://a/b"}, (), True),
        ({"Host.Example"}, ("host.example",), True),
        ({"spiffe://a/B"}, ("spiffe://a/b",), False),
        ({"spiffe://a/b/c"}, ("spiffe://a/b",), False),
        ({"*.example"}, ("host.example",), False),
        (set(), ("host.example",), False),
    ],
)
def test_names_are_compared_whole(names: set[str], allowed: tuple[str, ...], welcome: bool) -> None:
    if welcome:
        require_allowed(names, allowed)
        return
    with pytest.raises(PermissionDenied, match="may not call this service"):
        require_allowed(names, allowed)


def test_only_uris_and_dns_names_count() -> None:
    of_grpc = {"peer_uri": [b"spiffe://a/b"], "peer_dns": [b"c"], "x509_common_name": [b"d"], "peer_email": [b"e"]}
    assert names_of_grpc(of_grpc) == {"spiffe://a/b", "c"}
    entries = (("DNS", "c"), ("URI", "spiffe://a/b"), ("email", "e"), ("IP Address", "127.0.0.1"))
    assert names_of_certificate({"subjectAltName": entries, "subject": ((("commonName", "d"),),)}) == {
        "c",
        "spiffe://a/b",
    }
    assert names_of_certificate(None) == set()
