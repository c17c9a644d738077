"""Command-line options for TLS: of a client, and of the services that a command starts."""

import argparse
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.tls.client_tls import CA, CERTIFICATE, KEY, NAME, USE, ClientTls

_CLIENT = (
    ("ca", "FILE", f"PEM file of the CA certificates to trust (default: {CA}, else public CAs)"),
    (
        "certificate",
        "FILE",
        f"PEM file of the client certificate, for a server that wants one (default: {CERTIFICATE})",
    ),
    ("key", "FILE", f"PEM file of its private key (default: {KEY})"),
    ("name", "HOST", f"name that the server's certificate must have (default: {NAME}, else the host of --server)"),
)


def add_client_tls(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """--tls and the other options of a client; each of those implies it."""
    parser.add_argument(
        "--tls",
        action="store_true",
        default=default if default == argparse.SUPPRESS else False,
        help=f"encrypt, and check the server's certificate (default: {USE}=1)",
    )
    for name, form, text in _CLIENT:
        kind = Path if form == "FILE" else str
        parser.add_argument(f"--tls-{name}", type=kind, default=default, metavar=form, help=text)


def client_tls(arguments: argparse.Namespace) -> ClientTls | None:
    """What these options and the environment say; None: plaintext. Raises SettingsError."""
    given = {name: getattr(arguments, f"tls_{name}") for name, _, _ in _CLIENT}
    from_environment = ClientTls.from_environment()
    if not arguments.tls and not any(given.values()):
        return from_environment
    base = from_environment or ClientTls()
    if given["certificate"] or given["key"]:
        pair = given["certificate"], given["key"]
    else:
        pair = base.certificate, base.key
    return ClientTls(given["ca"] or base.ca, *pair, given["name"] or base.name)


def add_served_tls(parser: argparse.ArgumentParser) -> None:
    """--tls-certificate, --tls-key, --tls-client-ca, --tls-client-name of the public ports."""
    for name, text in (
        (
            "certificate",
            "PEM file of the certificate of the public ports, --listen, --http and --wyoming (default: none)",
        ),
        ("key", "PEM file of its private key"),
        ("client-ca", "PEM file of the CA certificates that sign those of callers; others get no connection"),
    ):
        parser.add_argument(f"--tls-{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--tls-client-name",
        action="append",
        default=[],
        metavar="NAME",
        help="URI or DNS name of which a caller's certificate must have one; may be given again (default: any)",
    )


def served_tls(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the options of `add_served_tls` set. Raises SettingsError for a
    certificate without a key, and client certificates without TLS.
    """
    files = {
        "TLS_CERTIFICATE": arguments.tls_certificate,
        "TLS_KEY": arguments.tls_key,
        "TLS_CLIENT_CA": arguments.tls_client_ca,
    }
    if (arguments.tls_certificate is None) != (arguments.tls_key is None):
        raise SettingsError("--tls-certificate and --tls-key are needed together")
    if arguments.tls_client_ca is not None and arguments.tls_certificate is None:
        raise SettingsError("--tls-client-ca needs --tls-certificate and --tls-key")
    if arguments.tls_client_name and arguments.tls_client_ca is None:
        raise SettingsError("--tls-client-name needs --tls-client-ca")
    values = {name: str(path.absolute()) for name, path in files.items() if path is not None}
    if arguments.tls_client_name:
        values["TLS_CLIENT_NAMES"] = ",".join(arguments.tls_client_name)
    return {
        f"COSYSERVE_{service}_{name}": value
        for service in ("ORCHESTRATOR", "GATEWAY")
        for name, value in values.items()
    }
