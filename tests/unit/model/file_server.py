"""A web server on loopback that serves given files and misbehaves as configured."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class Request(NamedTuple):
    path: str
    headers: Message


@dataclass
class FileServer:
    """files: content by path, leading slash included. answers: by path, what is done instead of
    `Handler.usual`.
    """

    files: dict[str, bytes]
    address: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, Callable[["Handler", bytes], object]] = field(default_factory=dict)
    etag: str | None = '"one"'

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: FileServer

    def do_GET(self) -> None:
        self.served.requests.append(Request(self.path, self.headers))
        if self.path in self.served.files:
            self.served.answers.get(self.path, Handler.usual)(self, self.served.files[self.path])
        else:
            self.answer(404)

    @property
    def start(self) -> int:
        """First byte asked for; 0 when the file has changed since."""
        asked = self.headers.get("Range", "")
        changed = self.headers.get("If-Range", self.served.etag) != self.served.etag
        return 0 if changed or not asked else int(asked.removeprefix("bytes=").removesuffix("-"))

    def usual(self, content: bytes) -> None:
        self.part(content, self.start)

    def part(self, content: bytes, start: int, *, cut: int | None = None) -> None:
        """The file from `start`; cut: only so many bytes, then the connection ends."""
        if start >= len(content):
            self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
            return
        rest = content[start:]
        headers = {"ETag": self.served.etag} if self.served.etag else {}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.answer(206 if "Range" in self.headers and start else 200, headers, length=len(rest))
        # the client has hung up
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(rest[:cut])
        if cut is not None and cut < len(rest):
            self.close_connection = True

    def answer(self, status: int, headers: Mapping[str, str] = MappingProxyType({}), *, length: int = 0) -> None:
        """What stands before the content of this length."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FileServer]:
    served = FileServer(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Handler,), {"served": served}))
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_catalogue(path: Path, *names: str) -> None:
    """A list of wanted files, under hubs that are not asked."""
    files = "".join(f'[files."{name}"]\nfor = "a test"\nabout = 1\n' for name in names)
    hubs = "".join(f'[{hub}]\nrepository = "a/b"\nrevision = "main"\n' for hub in ("huggingface", "modelscope"))
    path.write_text(f'what = "a test"\n{hubs}{files}')
