"""Command-line options of a connection: TLS of a client and of the services that a command starts,
and the API key of the caller.
"""

import argparse
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError
from cosyserve.keys.secret import VARIABLE, key_of_environment, key_of_file
from cosyserve.tls.settings import CA, CERTIFICATE, KEY, NAME, USE, ClientTls

_CLIENT = (
    ("ca", "FILE", f"PEM file of the CA certificates to trust (default: {CA}, else public CAs)"),
    (
        "certificate",
        "FILE",
        f"PEM file of the client certificate, for a server that wants one (default: {CERTIFICATE})",
    ),
    ("key", "FILE", f"PEM file of its private key (default: {KEY})"),
    ("name", "HOST", f"name that the server's certificate must have (default: {NAME}, else the server's host)"),
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


def add_api_key(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """--api-key-file: a key in the command line itself would be in the list of processes."""
    parser.add_argument(
        "--api-key-file",
        type=Path,
        default=default,
        metavar="FILE",
        help=f"file with the API key, for a server that wants one (default: the variable {VARIABLE})",
    )


def api_key(arguments: argparse.Namespace) -> str:
    """The key of the caller; empty if there is none. Raises SettingsError."""
    return key_of_environment() if arguments.api_key_file is None else key_of_file(arguments.api_key_file)
