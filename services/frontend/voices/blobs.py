"""Named byte strings shared by several processes: a directory, or an object store by its URL.

Every write is atomic. On an object store a put is atomic by itself; in a directory a temporary file
is written, flushed, and then linked or renamed to its name.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from cosyserve.errors import Overloaded

TEMPORARY = "aside"
"""The folder of files that are being written."""
log = logging.getLogger(__name__)


class BlobExists(Exception):
    """A blob of that name already exists."""


class Blobs:
    """Blobs below one URL of `fsspec`. Names are chosen by this service, never by a caller:
    `folder/name`. All methods block; thread-safe.

    Raises Overloaded, which names no blob (the log does), when a storage operation fails;
    ValueError for an invalid URL.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._files = filesystem
        self.root = root

    def read(self, name: str) -> bytes | None:
        """The bytes of a blob; None when it does not exist."""
        with self._storage_errors("read", name), contextlib.suppress(FileNotFoundError):
            data: bytes = self._files.cat_file(self._path(name))
            return data
        return None

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """The bytes of the blobs that exist."""
        with self._storage_errors("read", f"{len(names)} blobs"):
            answers = self._files.cat([self._path(name) for name in names], on_error="return") if names else {}
            blobs: dict[str, bytes] = {}
            for path, answer in answers.items():
                if isinstance(answer, bytes):
                    blobs["/".join(path.rsplit("/", 2)[1:])] = answer
                elif not isinstance(answer, FileNotFoundError):
                    raise answer
            return blobs

    def put(self, name: str, data: bytes) -> None:
        """Write or overwrite a blob."""
        with self._storage_errors("write", name):
            self._files.pipe_file(self._path(name), data)

    def put_new(self, name: str, data: bytes) -> None:
        """Write a new blob. Raises BlobExists when it exists; of several concurrent writers one
        succeeds.
        """
        with self._storage_errors("write", name):
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError as error:
                raise BlobExists(name) from error

    def delete(self, name: str) -> bool:
        """Delete a blob; returns whether it existed (where the storage reports it)."""
        with self._storage_errors("delete", name), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))
            return True
        return False

    def take(self, name: str) -> bytes | None:
        """Delete a blob and return its bytes; None when it does not exist. In a directory one of
        several concurrent takers gets it.
        """
        data = self.read(name)
        return data if data is not None and self.delete(name) else None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without the folder, unordered."""
        with self._storage_errors("list", folder), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache(self._path(folder))
            return [path.rpartition("/")[2] for path in self._files.ls(self._path(folder), detail=False)]
        return []

    def age_seconds(self, name: str) -> float | None:
        """Seconds since it was written, by the storage's clock against ours; None when it does not
        exist.
        """
        with self._storage_errors("look at", name), contextlib.suppress(FileNotFoundError):
            written: datetime = self._files.modified(self._path(name))
            aware = written if written.tzinfo else written.replace(tzinfo=UTC)
            return (datetime.now(UTC) - aware).total_seconds()
        return None

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextlib.contextmanager
    def _storage_errors(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except (BlobExists, Overloaded):
            raise
        except Exception as error:  # each object store has its own
            # The reason names paths and addresses, which the caller must not see.
            log.warning(
                "the voice storage could not %s %s: %s: %s",
                what,
                name,
                type(error).__name__,
                str(error).split("\n", 1)[0],
            )
            # Not UNAVAILABLE: clients would treat this replica as dead although its presets still
            # work.
            raise Overloaded(f"the voice storage could not {what} it; try again in 1 s", retry_after=1.0) from error


class DirectoryBlobs(Blobs):
    """Blobs as files of one directory, which several hosts may share. It needs hard links, which
    every Unix file system and NFS support.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(LocalFileSystem(), str(root))

    def put(self, name: str, data: bytes) -> None:
        with self._storage_errors("write", name), self._temporary_file(data) as temporary:
            self._into_place(os.replace, temporary, name)

    def put_new(self, name: str, data: bytes) -> None:
        with self._storage_errors("write", name), self._temporary_file(data) as temporary:
            try:
                self._into_place(os.link, temporary, name)
            except FileExistsError as error:
                raise BlobExists(name) from error

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        return {name: data for name in names if (data := self.read(name)) is not None}

    def take(self, name: str) -> bytes | None:
        with self._storage_errors("delete", name):
            temporary = self._temporary_path()
            try:
                Path(self._path(name)).rename(temporary)
            except FileNotFoundError:
                return None
            data = temporary.read_bytes()
            temporary.unlink()
            return data

    def names(self, folder: str) -> list[str]:
        with self._storage_errors("list", folder), contextlib.suppress(FileNotFoundError):
            return [path.name for path in Path(self._path(folder)).iterdir()]
        return []

    @contextlib.contextmanager
    def _temporary_file(self, data: bytes) -> Iterator[Path]:
        path = self._temporary_path()
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _temporary_path(self) -> Path:
        folder = Path(self._path(TEMPORARY))
        folder.mkdir(parents=True, exist_ok=True)
        return folder / secrets.token_hex(16)

    def _into_place(self, move: Callable[[Path, Path], None], temporary: Path, name: str) -> None:
        target = Path(self._path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        move(temporary, target)
        # The name is durable only after its directory is flushed.
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def open_blobs(url: str, folder: str) -> Blobs:
    """The blobs in `folder` below a directory (its path, or file://) or below the URL of an object
    store (s3://bucket/prefix, gs://...).

    Raises ValueError naming a protocol that fsspec does not know, or its missing package.
    """
    protocol, separator, path = url.partition("://")
    if not separator or protocol in ("file", "local"):
        return DirectoryBlobs(Path(path if separator else url).expanduser().absolute() / folder)
    try:
        filesystem, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{protocol}:// cannot be opened: {str(error).split(chr(10), 1)[0]}") from error
    return Blobs(filesystem, f"{root.rstrip('/')}/{folder}")
