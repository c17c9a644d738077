"""`python -m cosyserve.probe [--http] PORT`: exit status 0 if the service on this port of the
machine is SERVING, else 1 and one line. With --http the port is that of `health_listen`, which is
plaintext also where the service has TLS.

The health check of the images: it needs nothing that an image does not have.
"""

import http.client
import sys
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SECONDS = 4.0


def state(port: int, seconds: float = _SECONDS) -> str:
    """SERVING, another state by its name, or the status of a call that failed."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=seconds)  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def state_over_http(port: int, seconds: float = _SECONDS) -> str:
    """SERVING, another state by its name, or why there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(64).decode("ascii", "replace").strip()
        return text if answer.status in (200, 503) else f"HTTP {answer.status}"
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or type(error).__name__
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    over_http = given[:1] == ["--http"]
    port = given[1:] if over_http else given
    if len(port) != 1 or not port[0].isdecimal() or not 1 <= int(port[0]) <= 65535:
        sys.stderr.write("usage: python -m cosyserve.probe [--http] PORT\n")
        return 2
    health = (state_over_http if over_http else state)(int(port[0]))
    if health != "SERVING":
        sys.stderr.write(f"port {port[0]}: {health}\n")
    return 0 if health == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
