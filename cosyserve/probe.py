"""`python -m cosyserve.probe PORT`: exit status 0 if the service on this port of the machine is
SERVING, else 1 and one line.

The health check of the images: it needs nothing that an image does not have.
"""

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


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or not given[0].isdecimal() or not 1 <= int(given[0]) <= 65535:
        sys.stderr.write("usage: python -m cosyserve.probe PORT\n")
        return 2
    health = state(int(given[0]))
    if health != "SERVING":
        sys.stderr.write(f"port {given[0]}: {health}\n")
    return 0 if health == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
