"""Where model files can be had: Hugging Face, ModelScope, a mirror on the web, or a directory.

Each fetches a file and, where it knows them, says size and sha256 before anything is fetched.
Endpoints can be changed with HF_ENDPOINT and MODELSCOPE_ENDPOINT, tokens for repositories that ask
for one are HF_TOKEN and MODELSCOPE_API_TOKEN.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx2
from huggingface_hub import HfApi, get_session, hf_hub_url
from huggingface_hub.hf_api import RepoFile

from cosyserve.errors import ModelError
from tools.model.fetch.transfer import SILENCE, Transfer, WebError, finish, part_of
from tools.model.fetch.wanted_files import RECORD, Repository, SizeAndHash, parse_record, read_record

_MOST_LISTING = 16 << 20
_BLOCK = 4 << 20
OnBytes = Callable[[int], None]


class Hub(ABC):
    """A place with model files."""

    name: str
    """As it is recorded: where from, and which revision."""

    @abstractmethod
    def known(self) -> dict[str, SizeAndHash]:
        """What it says about its files, by path; nothing where it has no list. Raises ModelError
        when there is no such repository, or it cannot be asked.
        """

    @abstractmethod
    def fetch(self, file: str, path: Path, known: SizeAndHash, on_bytes: OnBytes) -> SizeAndHash:
        """As `Transfer.fetch`."""


class _WebHub(Hub):
    """Over HTTP. headers: sent with every request to this place, and nowhere else."""

    def __init__(self, name: str, transfer: Transfer, headers: dict[str, str] | None = None) -> None:
        self.name, self._transfer, self._headers = name, transfer, headers or {}

    @abstractmethod
    def address(self, file: str) -> str:
        """URL of a file."""

    def fetch(self, file: str, path: Path, known: SizeAndHash, on_bytes: OnBytes) -> SizeAndHash:
        return self._transfer.fetch(self.address(file), self._headers, path, known, on_bytes)

    def _text(self, url: str) -> str:
        """A small file. Raises WebError, and ModelError for a large one."""
        try:
            with get_session().stream("GET", url, headers=self._headers, timeout=SILENCE) as response:
                response.raise_for_status()
                data = next(response.iter_bytes(_MOST_LISTING + 1), b"")
        except httpx2.HTTPError as error:
            raise WebError(url, error) from error
        if len(data) > _MOST_LISTING:
            raise ModelError(f"{url}: more than {_MOST_LISTING} bytes")
        return data.decode(errors="replace")


class _Repositories(_WebHub):
    def __init__(self, repository: Repository, transfer: Transfer, endpoint: str, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(f"{endpoint}/{repository.name}@{repository.revision}", transfer, headers)
        self._repository, self._endpoint, self._token = repository, endpoint, token


class HuggingFace(_Repositories):
    def address(self, file: str) -> str:
        return hf_hub_url(self._repository.name, file, revision=self._repository.revision, endpoint=self._endpoint)

    def known(self) -> dict[str, SizeAndHash]:
        api = HfApi(endpoint=self._endpoint, token=self._token or False)
        try:
            tree = api.list_repo_tree(self._repository.name, recursive=True, revision=self._repository.revision)
            # Small files are stored in git, whose hash is over more than the content; only large
            # ones have a sha256.
            return {
                file.path: SizeAndHash.of(file.lfs.size, file.lfs.sha256)
                if file.lfs
                else SizeAndHash.of(file.size, None)
                for file in tree
                if isinstance(file, RepoFile)
            }
        except httpx2.HTTPError as error:
            raise WebError(self.name, error) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{self.name}: not the listing of a repository: {error}") from error


class ModelScope(_Repositories):
    def _url(self, what: str, **query: str) -> str:
        asked = urlencode({"Revision": self._repository.revision, **query})
        return f"{self._endpoint}/api/v1/models/{quote(self._repository.name)}/{what}?{asked}"

    def address(self, file: str) -> str:
        return self._url("repo", FilePath=file)

    def known(self) -> dict[str, SizeAndHash]:
        url = self._url("repo/files", Recursive="true")
        try:
            blobs = [entry for entry in json.loads(self._text(url))["Data"]["Files"] if entry.get("Type") != "tree"]
            return {str(entry["Path"]): SizeAndHash.of(entry.get("Size"), entry.get("Sha256")) for entry in blobs}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{url}: not the listing of a repository: {type(error).__name__}: {error}") from error


class Mirror(_WebHub):
    """Any web server with the files laid out as in a model directory; its download.json, if it has
    one, says what they are.
    """

    def address(self, file: str) -> str:
        return f"{self.name.rstrip('/')}/{quote(file)}"

    def known(self) -> dict[str, SizeAndHash]:
        try:
            return parse_record(self.address(RECORD), self._text(self.address(RECORD)))
        except WebError as error:
            if error.status in (403, 404):
                return {}
            raise


class Directory(Hub):
    """A folder with the files laid out as in a model directory, which are copied."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def known(self) -> dict[str, SizeAndHash]:
        paths = [path for path in self._folder.rglob("*") if path.is_file()]
        if not paths:
            raise ModelError(f"{self._folder}: {'no files in it' if self._folder.is_dir() else 'no such directory'}")
        files = {path.relative_to(self._folder).as_posix(): SizeAndHash(path.stat().st_size) for path in paths}
        return files | {name: known for name, known in read_record(self._folder / RECORD).items() if name in files}

    def fetch(self, file: str, path: Path, known: SizeAndHash, on_bytes: OnBytes) -> SizeAndHash:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (self._folder / file).open("rb") as source, part_of(path).open("wb") as stream:
            while block := source.read(_BLOCK):
                on_bytes(stream.write(block))
        return finish(part_of(path), path, known, self._folder / file)


def hub_named(name: str, repository: Repository, transfer: Transfer, environ: Mapping[str, str]) -> Hub:
    """`huggingface` or `modelscope`, with endpoint and token of the environment."""
    if name == "huggingface":
        endpoint = environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return HuggingFace(repository, transfer, endpoint.rstrip("/"), environ.get("HF_TOKEN") or None)
    endpoint = environ.get("MODELSCOPE_ENDPOINT") or "https://www.modelscope.cn"
    return ModelScope(repository, transfer, endpoint.rstrip("/"), environ.get("MODELSCOPE_API_TOKEN") or None)
