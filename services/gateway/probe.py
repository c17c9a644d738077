"""`python -m services.gateway.probe PORT`: exit status 0 if the gateway on this port of the machine
answers in plain HTTP, else 1 and one line. The health check of the image, which asks the port of
`health_listen`: it needs nothing that the image lacks.
"""

import http.client
import sys
from collections.abc import Sequence

_SECONDS = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1 or not given[0].isdecimal() or not 1 <= int(given[0]) <= 65535:
        sys.stderr.write("usage: python -m services.gateway.probe PORT\n")
        return 2
    connection = http.client.HTTPConnection("127.0.0.1", int(given[0]), timeout=_SECONDS)
    try:
        connection.request("GET", "/healthz")
        status: int | str = connection.getresponse().status
    except OSError as error:
        status = error.strerror or type(error).__name__
    finally:
        connection.close()
    if status != 200:
        sys.stderr.write(f"port {given[0]}: {status}\n")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
