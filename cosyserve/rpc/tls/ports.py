"""The ports of a server: plaintext, or TLS with certificates that may be exchanged, and which
callers may use them by the names in their certificates.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc

from cosyserve.errors import PermissionDenied, SettingsError
from cosyserve.rpc.interceptors import Context, abort, rebuilt, respond
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.tls.certificate_files import CertificateFiles, Certificates, CurrentCertificates
from cosyserve.tls.peer_names import names_of_grpc, require_allowed


def listen(server: grpc.aio.Server, settings: ServerSettings) -> int:
    """Bind the addresses of the settings; returns the port of `listen`. Raises SettingsError if an
    address cannot be listened on, or a certificate file cannot be used.
    """
    files = settings.served_files
    credentials = None if files is None else server_credentials(files)
    if settings.local_listen:
        _bind(server, "local_listen", settings.local_listen, None)
    return _bind(server, "listen", settings.listen, credentials)


def server_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Credentials whose certificates are those of the files when a connection begins; with `ca`,
    callers need a certificate that it signed. Raises SettingsError.
    """
    certificates = CurrentCertificates(files, "served")
    used = certificates.latest()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # A thread of grpcio asks at each handshake.
        nonlocal used
        latest = certificates.latest()
        if latest is used:
            return None
        used = latest
        return _configuration(latest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used),
        changed,  # type: ignore[arg-type]  # its types lack the None that grpcio documents
        require_client_authentication=files.ca is not None,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pair = (certificates.key or b"", certificates.certificate or b"")
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=certificates.ca)


def _bind(server: grpc.aio.Server, name: str, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SettingsError(f"{name} is {address!r}, which cannot be listened on (in use, or not host:port)") from error


class AllowedCallers(grpc.aio.ServerInterceptor):
    """Lets only those callers in whose client certificate has one of the names.

    The outermost interceptor: a caller without such a name gets PERMISSION_DENIED from every
    method, also of health and reflection, before its first message is read.

    Callers on a Unix socket have no certificate; the permissions of its folder have let them in.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        return None if handler is None else rebuilt(handler, self._checked)

    def _checked(self, behaviour: Callable[[Any, Context], Any]) -> Callable[[Any, Context], Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            if not context.peer().startswith("unix:"):
                try:
                    require_allowed(names_of_grpc(context.auth_context()), self._names)
                except PermissionDenied as error:
                    await abort(context, error)
            return await respond(behaviour(request, context), context)

        return call
