"""Where model files can be had: Hugging Face, ModelScope, or a mirror.

Each knows the address of a file and, where it knows them, size and sha256 before anything is
fetched. Endpoints can be changed with HF_ENDPOINT and MODELSCOPE_ENDPOINT, tokens for repositories
that ask for one are HF_TOKEN and MODELSCOPE_API_TOKEN.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from cosyserve.errors import ModelError
from tools.model.fetch.http_client import Web, WebError
from tools.model.fetch.wanted_files import RECORD, Repository, SizeAndHash, parse_record

_MOST_LISTING = 16 << 20


class Hub(Protocol):
    """A place with model files over HTTP."""

    @property
    def name(self) -> str:
        """As it is recorded: where from, and which revision."""
        ...

    def headers(self) -> dict[str, str]:
        """Sent with every request to this place, and nowhere else."""
        ...

    def address(self, path: str) -> str:
        """URL of a file."""
        ...

    def known(self, web: Web) -> dict[str, SizeAndHash]:
        """What it says about its files, by path. Raises ModelError when there is no such
        repository, WebError when it cannot be asked.
        """
        ...


@dataclass(frozen=True)
class HuggingFace:
    repository: Repository
    endpoint: str = "https://huggingface.co"
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.endpoint}/{self.repository.name}@{self.repository.revision}"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def address(self, path: str) -> str:
        revision = quote(self.repository.revision, safe="")
        return f"{self.endpoint}/{quote(self.repository.name)}/resolve/{revision}/{quote(path)}"

    def known(self, web: Web) -> dict[str, SizeAndHash]:
        revision = quote(self.repository.revision, safe="")
        url = f"{self.endpoint}/api/models/{quote(self.repository.name)}/tree/{revision}?recursive=true"
        listing = _json(web, url, self.headers())
        if not isinstance(listing, list):
            raise ModelError(f"{url}: not the listing of a repository")
        files = {}
        for entry in listing:
            if isinstance(entry, dict) and entry.get("type") == "file":
                # Small files are stored in git, whose hash is over more than the content; only
                # large ones have a sha256.
                large = entry.get("lfs") or {}
                files[str(entry.get("path"))] = SizeAndHash.of(large.get("size", entry.get("size")), large.get("oid"))
        return files


@dataclass(frozen=True)
class ModelScope:
    repository: Repository
    endpoint: str = "https://www.modelscope.cn"
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.endpoint}/{self.repository.name}@{self.repository.revision}"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def address(self, path: str) -> str:
        query = urlencode({"Revision": self.repository.revision, "FilePath": path})
        return f"{self.endpoint}/api/v1/models/{quote(self.repository.name)}/repo?{query}"

    def known(self, web: Web) -> dict[str, SizeAndHash]:
        query = urlencode({"Revision": self.repository.revision, "Recursive": "true"})
        url = f"{self.endpoint}/api/v1/models/{quote(self.repository.name)}/repo/files?{query}"
        answer = _json(web, url, self.headers())
        files = ((answer.get("Data") or {}).get("Files")) if isinstance(answer, dict) else None
        if not isinstance(files, list):
            raise ModelError(f"{url}: not the listing of a repository")
        blobs = (entry for entry in files if isinstance(entry, dict) and entry.get("Type") != "tree")
        return {str(entry.get("Path")): SizeAndHash.of(entry.get("Size"), entry.get("Sha256")) for entry in blobs}


@dataclass(frozen=True)
class Mirror:
    """Any web server with the files laid out as in a model directory; its download.json, if it has
    one, says what they are.
    """

    url: str

    @property
    def name(self) -> str:
        return self.url

    def headers(self) -> dict[str, str]:
        return {}

    def address(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{quote(path)}"

    def known(self, web: Web) -> dict[str, SizeAndHash]:
        try:
            text = web.text(self.address(RECORD), {}, _MOST_LISTING)
        except WebError as error:
            if error.status in (403, 404):
                return {}
            raise
        return parse_record(self.address(RECORD), text).files


def hub_named(name: str, repository: Repository, environ: Mapping[str, str]) -> Hub:
    """`huggingface` or `modelscope`, with endpoint and token of the environment."""
    kind, endpoint, token = (HuggingFace, "HF_ENDPOINT", "HF_TOKEN") if name == "huggingface" else (
        ModelScope, "MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN"
    )  # fmt: skip
    given = environ.get(endpoint, "").rstrip("/")
    return kind(repository, given or kind.endpoint, environ.get(token) or None)


def _json(web: Web, url: str, headers: dict[str, str]) -> Any:
    text = web.text(url, headers, _MOST_LISTING)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ModelError(f"{url}: the answer is no JSON: {error}") from error
