"""Model files in an object store, or any other place that fsspec knows: s3://, gs://, file://.

Credentials and endpoints are those that the libraries of each store read from the environment.
"""

from pathlib import Path
from typing import Any

import fsspec

from cosyserve.errors import ModelError
from tools.model.fetch.hubs import Hub, OnBytes
from tools.model.fetch.transfer import finish, part_of
from tools.model.fetch.wanted_files import RECORD, SizeAndHash, parse_record

_BLOCK = 4 << 20


class ObjectStore(Hub):
    """A folder of a store with the files laid out as in a model directory; its download.json, if it
    has one, says what they are.
    """

    def __init__(self, url: str) -> None:
        """Raises ModelError for a protocol that fsspec does not know, or whose package is
        missing.
        """
        self.name = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise ModelError(f"{url}: {error}") from error

    def known(self) -> dict[str, SizeAndHash]:
        place = self._place(RECORD)
        try:
            if not self._files.exists(place):
                return {}
            return parse_record(f"{self.name}/{RECORD}", self._files.cat_file(place).decode())
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.name}/{RECORD}: no record of a download: {error}") from error
        except Exception as error:
            raise self._failed(RECORD, error) from error

    def fetch(self, file: str, path: Path, known: SizeAndHash, on_bytes: OnBytes) -> SizeAndHash:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Read in order and once: no cache of the library's own.
            with self._files.open(self._place(file), "rb", cache_type="none") as source:
                _copy(source, part_of(path), known, on_bytes)
        except Exception as error:
            part_of(path).unlink(missing_ok=True)
            raise self._failed(file, error) from error
        return finish(part_of(path), path, known, f"{self.name}/{file}")

    def _place(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}"

    def _failed(self, file: str, error: Exception) -> ModelError:
        """Each library has errors of its own, which share no class."""
        if isinstance(error, ModelError):
            return error
        missing = isinstance(error, FileNotFoundError)
        return ModelError(
            f"{self.name}/{file}: {'no such file there' if missing else str(error) or type(error).__name__}"
        )


def _copy(source: Any, part: Path, known: SizeAndHash, on_bytes: OnBytes) -> None:
    """Raises ModelError for more bytes than `known` says: the disk has room for those."""
    with part.open("wb") as stream:
        while block := source.read(_BLOCK):
            on_bytes(stream.write(block))
            if known.size is not None and stream.tell() > known.size:
                raise ModelError(f"{part.name}: more than the {known.size} bytes that the file has")
