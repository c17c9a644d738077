"""The ports of a server: plaintext, or TLS with certificates that may be exchanged."""

import grpc

from cosyserve.errors import SettingsError
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.tls.certificate_files import CertificateFiles, Certificates, CurrentCertificates


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
