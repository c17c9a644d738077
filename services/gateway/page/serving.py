"""GET / and the files of the page, from memory: a browser asks again each time and gets 304 while
a file is the same.

All addresses in the page are relative, so that it works below any path under which a proxy
publishes the gateway.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

router = APIRouter(include_in_schema=False)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "media-src": "blob:",  # a recording of the microphone, before it is sent
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "content-security-policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
    "cache-control": "no-cache",
}
"""Of every answer here. The policy allows what the gateway itself serves, and nothing inline."""


@dataclass(frozen=True)
class PageFile:
    """content: as it is sent; etag: quoted, of the content."""

    content: bytes
    media_type: str
    etag: str


def _found(folder: Traversable, prefix: str = "") -> dict[str, PageFile]:
    """Every file of the page below `folder`, by its path."""
    found: dict[str, PageFile] = {}
    for each in folder.iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if each.is_dir():
            found |= _found(each, f"{prefix}{each.name}/")
        elif suffix in MEDIA_TYPES:
            content = each.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[prefix + each.name] = PageFile(content, MEDIA_TYPES[suffix], etag)
    return found


FILES = _found(files(__name__.rpartition(".")[0]))
"""By the path below /page/; `index.html` is the answer to /."""


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """The page itself."""
    return _answer(request, FILES["index.html"])


@router.api_route("/page/{name:path}", methods=["GET", "HEAD"])
async def file(name: str, request: Request) -> Response:
    """A file of it."""
    if name not in FILES:
        raise HTTPException(404, "the page has no such file")
    return _answer(request, FILES[name])


def _answer(request: Request, of: PageFile) -> Response:
    headers = {**HEADERS, "etag": of.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if of.etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(of.content, headers=headers, media_type=of.media_type)
