"""Names in the certificate of a caller, and whether one of them is allowed."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from cosyserve.errors import PermissionDenied

_DNS: Final = re.compile(r"[A-Za-z0-9*](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[\x21-\x7e]+")


def check_form(names: Iterable[str]) -> None:
    """Raise ValueError for what is neither a DNS name nor a URI."""
    for name in names:
        if not _URI.fullmatch(name) and not _DNS.fullmatch(name):
            raise ValueError(
                f"tls_client_names has {name!r}; expected a URI such as spiffe://example.org/orchestrator, or a DNS "
                "name"
            )


def names_of_grpc(auth_context: Mapping[str, Iterable[bytes]]) -> set[str]:
    """The URIs and DNS names (subject alternative names) of a caller of a gRPC server."""
    values = [*auth_context.get("peer_uri", ()), *auth_context.get("peer_dns", ())]
    return {value.decode("utf-8", "replace") for value in values}


def names_of_certificate(certificate: Mapping[str, Any] | None) -> set[str]:
    """The same of a certificate as `ssl.SSLSocket.getpeercert` describes it."""
    entries = (certificate or {}).get("subjectAltName", ())
    return {value for kind, value in entries if kind in ("DNS", "URI")}


def require_allowed(names: Collection[str], allowed: Collection[str]) -> None:
    """Raise PermissionDenied unless a name is among `allowed`; exact, DNS names without regard to
    case. Nothing is required if `allowed` is empty.
    """
    if not allowed or {_comparable(name) for name in names} & {_comparable(name) for name in allowed}:
        return
    shown = ", ".join(sorted(names)) or "no name"
    raise PermissionDenied(f"the client certificate is for {shown}, which may not call this service")


def _comparable(name: str) -> str:
    return name if "://" in name else name.lower()
