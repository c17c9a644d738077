"""Model files over HTTP: carried on, checked, refused in clear words. The server is real and on
loopback.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from cosyserve.errors import ModelError
from tests.unit.model.file_server import FileServer, Handler, listing, serving
from tools.model import download
from tools.model.fetch.http_client import Web
from tools.model.fetch.hubs import HuggingFace, Mirror, ModelScope
from tools.model.fetch.transfer import Transfer
from tools.model.fetch.wanted_files import (
    CATALOGUE,
    Repository,
    SizeAndHash,
    WantedFile,
    parse_record,
    read_catalogue,
    read_record,
)

LARGE = bytes(range(256)) * 4096 * 3
SMALL = b"sample_rate: 24000\n"
FILES = {"/llm.pt": LARGE, "/cosyvoice2.yaml": SMALL}
ROOT = Path(__file__).parents[3]


def wanted(path: str, *, optional: bool = False, sha256: str | None = None, size: int | None = None) -> WantedFile:
    return WantedFile(path, "a test", 1000, optional, None, size, sha256)


WANTED = (wanted("cosyvoice2.yaml"), wanted("llm.pt"))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Fetcher(NamedTuple):
    """What a test fetches with, and what it said."""

    target: Path
    waits: list[float]
    troubles: list[str]
    transfer: Transfer

    def fetch(
        self, server: FileServer, files: tuple[WantedFile, ...] = WANTED, pins: dict[str, SizeAndHash] | None = None
    ) -> dict[str, SizeAndHash]:
        return download.fetch_all(self.target, Mirror(server.address), files, pins or {}, self.transfer)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(dict(FILES)) as running:
        yield running


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    waits: list[float] = []
    troubles: list[str] = []
    transfer = Transfer(Web(silence=5.0), tries=3, pause=waits.append, on_trouble=troubles.append)
    return Fetcher(tmp_path / "model", waits, troubles, transfer)


def files_of(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def only_large(behave: Callable[[Handler, bytes], bool]) -> Callable[[Handler, bytes], bool]:
    return lambda handler, content: handler.path == "/llm.pt" and behave(handler, content)


def test_everything_comes_and_is_recorded_and_nothing_comes_twice(server: FileServer, fetcher: Fetcher) -> None:
    done = fetcher.fetch(server)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE
    assert done["llm.pt"] == SizeAndHash(len(LARGE), sha(LARGE))
    assert read_record(fetcher.target / "download.json").files == done
    assert files_of(fetcher.target) == {"llm.pt", "cosyvoice2.yaml", "download.json", ".download.lock"}
    assert fetcher.fetch(server) == done
    assert len(server.asked("/llm.pt")) == len(server.asked("/cosyvoice2.yaml")) == 1


def test_a_connection_that_breaks_again_and_again_is_carried_on(server: FileServer, fetcher: Fetcher) -> None:
    def behave(handler: Handler, content: bytes) -> bool:
        handler.part(content, handler.start, cut=700_000)
        return True

    server.behave = only_large(behave)
    fetcher.fetch(server)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE
    ranges = [request.headers.get("Range") for request in server.asked("/llm.pt")]
    assert ranges == [None, *(f"bytes={at}-" for at in range(700_000, len(LARGE), 700_000))]
    assert {request.headers.get("If-Range") for request in server.asked("/llm.pt")[1:]} == {'"one"'}
    assert len(fetcher.waits) == len(ranges) - 1


def test_two_at_once_fetch_it_once(server: FileServer, fetcher: Fetcher) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: fetcher.fetch(server), range(2))
    assert first == second
    assert len(server.asked("/llm.pt")) == 1


def test_a_run_that_was_stopped_is_carried_on_by_the_next(server: FileServer, fetcher: Fetcher) -> None:
    server.behave = only_large(lambda handler, content: handler.part(content, handler.start, cut=1_000_000) is None)
    fetcher.transfer.pause = interrupt
    with pytest.raises(KeyboardInterrupt):
        fetcher.fetch(server)
    assert not (fetcher.target / "llm.pt").exists()
    assert (fetcher.target / "llm.pt.part").stat().st_size == 1_000_000
    server.behave = lambda handler, content: False
    fetcher.fetch(server)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE
    assert server.asked("/llm.pt")[-1].headers["Range"] == "bytes=1000000-"


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


def test_a_file_that_changed_in_between_is_begun_anew(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.target.mkdir()
    (fetcher.target / "llm.pt.part").write_bytes(b"old" * 1000)
    (fetcher.target / "llm.pt.part.json").write_text('{"validator": "\\"zero\\""}')
    fetcher.fetch(server)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE


def test_a_server_without_ranges_begins_anew(server: FileServer, fetcher: Fetcher) -> None:
    broken = iter([700_000])

    def behave(handler: Handler, content: bytes) -> bool:
        handler.part(content, 0, cut=next(broken, None))
        return True

    server.behave = only_large(behave)
    fetcher.fetch(server)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE


@pytest.mark.parametrize("shift", [-5, 5])
def test_a_wrong_range_is_never_joined(server: FileServer, fetcher: Fetcher, shift: int) -> None:
    def behave(handler: Handler, content: bytes) -> bool:
        start = handler.start
        handler.part(content, start + shift if start else 0, cut=None if start else 700_000)
        return True

    server.behave = only_large(behave)
    with pytest.raises(ModelError, match="given up after 3 tries that brought nothing"):
        fetcher.fetch(server)
    assert sum("asked for bytes from 700000, the server sends bytes" in trouble for trouble in fetcher.troubles) == 1
    assert not (fetcher.target / "llm.pt").exists()


def test_a_damaged_part_is_noticed_and_fetched_once_more(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.target.mkdir()
    (fetcher.target / "llm.pt.part").write_bytes(b"\0" * 1000)
    files = (wanted("llm.pt", sha256=sha(LARGE)),)
    assert fetcher.fetch(server, files)["llm.pt"].sha256 == sha(LARGE)
    assert any("does not fit, from the start" in trouble for trouble in fetcher.troubles)


def test_a_server_that_sends_nothing_is_given_up(server: FileServer, fetcher: Fetcher) -> None:
    server.behave = only_large(lambda handler, content: handler.part(content, handler.start, cut=0) is None)
    with pytest.raises(ModelError, match=r"llm\.pt: given up after 3 tries that brought nothing: the connection broke"):
        fetcher.fetch(server)
    assert fetcher.waits == [2.0, 4.0]


def test_no_server_at_all_is_given_up(fetcher: Fetcher) -> None:
    with pytest.raises(ModelError, match=r"no connection: .*refused"):
        download.fetch_all(fetcher.target, Mirror("http://127.0.0.1:9"), WANTED, {}, fetcher.transfer)


def test_a_wrong_hash_is_refused_and_leaves_nothing(server: FileServer, fetcher: Fetcher) -> None:
    with pytest.raises(
        ModelError,
        match=rf"sent {len(LARGE)} bytes with sha256 {sha(LARGE)}, expected are {len(LARGE)} bytes with sha256 00",
    ):
        fetcher.fetch(server, (wanted("llm.pt", sha256="00" * 32),))
    assert files_of(fetcher.target) == {".download.lock"}


def test_a_wrong_size_is_refused_before_it_is_fetched(server: FileServer, fetcher: Fetcher) -> None:
    with pytest.raises(ModelError, match=rf"the server has {len(LARGE)} bytes, expected are 12"):
        fetcher.fetch(server, (wanted("llm.pt", size=12),))


def test_what_came_first_is_trusted_and_nothing_else_later(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.fetch(server)
    (fetcher.target / "llm.pt").unlink()
    server.files["/llm.pt"] = LARGE[::-1]
    with pytest.raises(ModelError, match=f"expected are {len(LARGE)} bytes with sha256 {sha(LARGE)}"):
        fetcher.fetch(server)


def test_pins_of_another_machine_are_met_or_refused(server: FileServer, fetcher: Fetcher) -> None:
    assert fetcher.fetch(server, WANTED, {"llm.pt": SizeAndHash(len(LARGE), sha(LARGE))})
    (fetcher.target / "llm.pt").write_bytes(LARGE[:-1] + b"?")
    (fetcher.target / "download.json").unlink()
    with pytest.raises(ModelError, match=r"llm\.pt: has sha256 .* remove it to fetch it again"):
        fetcher.fetch(server, WANTED, {"llm.pt": SizeAndHash(len(LARGE), sha(LARGE))})


def test_a_file_that_was_damaged_on_the_disk_is_found_by_check(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.fetch(server)
    (fetcher.target / "llm.pt").write_bytes(LARGE[:-1] + b"?")
    with pytest.raises(ModelError, match="remove it to fetch it again"):
        download.fetch_all(fetcher.target, Mirror(server.address), WANTED, {}, fetcher.transfer, check=True)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "HTTP 404, no such file, repository or revision"),
        (401, "HTTP 401, it asks for a token: set HF_TOKEN"),
        (403, "accept the model's"),
    ],
)
def test_refusals_say_what_to_do_and_are_not_repeated(
    server: FileServer, fetcher: Fetcher, status: int, said: str
) -> None:
    server.behave = only_large(lambda handler, content: handler.answer(status, b"") is None)
    with pytest.raises(ModelError, match=said):
        fetcher.fetch(server)
    assert (len(server.asked("/llm.pt")), fetcher.waits) == (1, [])


def test_an_optional_file_may_be_missing(server: FileServer, fetcher: Fetcher) -> None:
    assert set(fetcher.fetch(server, (*WANTED, wanted("spk2info.pt", optional=True)))) == {"llm.pt", "cosyvoice2.yaml"}


def test_a_busy_server_is_asked_again_when_it_said(server: FileServer, fetcher: Fetcher) -> None:
    busy = iter([True, True])
    server.behave = only_large(
        lambda handler, content: next(busy, False) and handler.answer(503, b"", {"Retry-After": "7"}) is None
    )
    fetcher.fetch(server)
    assert fetcher.waits == [7.0, 7.0]


def test_room_on_the_disk_comes_first(server: FileServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"0\.00 GB free, 0\.0\d GB are needed"):
        fetcher.fetch(server)
    assert not server.asked("/llm.pt")


def test_hugging_face_is_asked_for_sizes_and_hashes(server: FileServer, fetcher: Fetcher) -> None:
    hub = HuggingFace(Repository("owner/name", "main"), server.address, token="secret")
    large = {"type": "file", "path": "llm.pt", "size": 134, "lfs": {"oid": sha(LARGE), "size": len(LARGE)}}
    small = {"type": "file", "path": "cosyvoice2.yaml", "size": len(SMALL), "oid": "f" * 40}
    server.files = {
        "/api/models/owner/name/tree/main?recursive=true": listing(
            [large, small, {"type": "directory", "path": "asset"}]
        ),
        "/owner/name/resolve/main/llm.pt": LARGE,
        "/owner/name/resolve/main/cosyvoice2.yaml": SMALL,
    }
    download.fetch_all(fetcher.target, hub, WANTED, {}, fetcher.transfer)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer secret"}
    (fetcher.target / "llm.pt").unlink()
    (fetcher.target / "download.json").unlink()
    server.files["/owner/name/resolve/main/llm.pt"] = LARGE[::-1]
    with pytest.raises(ModelError, match=f"expected are {len(LARGE)} bytes with sha256 {sha(LARGE)}"):
        download.fetch_all(fetcher.target, hub, WANTED, {}, fetcher.transfer)


def test_modelscope_is_asked_in_its_own_way(server: FileServer, fetcher: Fetcher) -> None:
    hub = ModelScope(Repository("iic/name", "master"), server.address)
    entries = [
        {"Path": name, "Type": "blob", "Size": len(data), "Sha256": sha(data)}
        for name, data in (("llm.pt", LARGE), ("cosyvoice2.yaml", SMALL))
    ]
    server.files = {
        "/api/v1/models/iic/name/repo/files?Revision=master&Recursive=true": listing(
            {"Code": 200, "Data": {"Files": entries}}
        ),
        "/api/v1/models/iic/name/repo?Revision=master&FilePath=llm.pt": LARGE,
        "/api/v1/models/iic/name/repo?Revision=master&FilePath=cosyvoice2.yaml": SMALL,
    }
    assert download.fetch_all(fetcher.target, hub, WANTED, {}, fetcher.transfer)["llm.pt"].sha256 == sha(LARGE)


def test_a_repository_without_a_needed_file_is_refused(server: FileServer, fetcher: Fetcher) -> None:
    hub = HuggingFace(Repository("owner/name", "main"), server.address)
    server.files = {
        "/api/models/owner/name/tree/main?recursive=true": listing([{"type": "file", "path": "README.md", "size": 3}])
    }
    with pytest.raises(ModelError, match=r"owner/name@main: has no cosyvoice2\.yaml, which serving needs"):
        download.fetch_all(fetcher.target, hub, WANTED, {}, fetcher.transfer)


def test_a_token_stays_with_its_host(server: FileServer, fetcher: Fetcher) -> None:
    hub = HuggingFace(Repository("owner/name", "main"), server.address, token="secret")
    elsewhere = server.address.replace("127.0.0.1", "localhost")
    server.files = {
        "/api/models/owner/name/tree/main?recursive=true": listing(
            [{"type": "file", "path": "llm.pt", "size": len(LARGE)}]
        ),
        "/owner/name/resolve/main/llm.pt": b"",
        "/moved": b"",
        "/content": LARGE,
    }
    moves = {"/owner/name/resolve/main/llm.pt": f"{server.address}/moved", "/moved": f"{elsewhere}/content"}
    server.behave = lambda handler, content: (
        handler.path in moves and handler.answer(302, b"", {"Location": moves[handler.path]}) is None
    )
    download.fetch_all(fetcher.target, hub, (wanted("llm.pt"),), {}, fetcher.transfer)
    assert server.asked("/moved")[0].headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in server.asked("/content")[0].headers


def test_the_proxy_of_the_environment_is_used(
    server: FileServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.files = {f"http://models.invalid{path}": data for path, data in FILES.items()}
    fetcher.transfer.web = Web(silence=5.0)
    download.fetch_all(fetcher.target, Mirror("http://models.invalid"), WANTED, {}, fetcher.transfer)
    assert (fetcher.target / "llm.pt").read_bytes() == LARGE


def test_a_mirror_directory_is_copied_and_checked(server: FileServer, fetcher: Fetcher, tmp_path: Path) -> None:
    fetcher.fetch(server)
    copied = download.copy_all(tmp_path / "copy", fetcher.target, WANTED, {})
    assert copied == read_record(fetcher.target / "download.json").files
    (tmp_path / "copy" / "llm.pt").write_bytes(LARGE[:-1] + b"?")
    assert download.copy_all(tmp_path / "copy", fetcher.target, WANTED, {}) == copied, (
        "a size that is right is believed"
    )
    with pytest.raises(ModelError, match="remove it to fetch it again"):
        download.copy_all(tmp_path / "copy", fetcher.target, WANTED, {}, check=True)
    (fetcher.target / "llm.pt").write_bytes(b"?" + LARGE[1:])
    with pytest.raises(ModelError, match="expected"):
        download.copy_all(tmp_path / "another", fetcher.target, WANTED, {})
    assert not (tmp_path / "another" / "llm.pt").exists()
    with pytest.raises(ModelError, match=r"has no hift\.pt"):
        download.copy_all(tmp_path / "third", fetcher.target, (*WANTED, wanted("hift.pt")), {})


@pytest.mark.parametrize("name", ["../llm.pt", "/etc/passwd", "a/../../b", "~/x", "a\\b", ""])
def test_a_record_cannot_lead_out_of_the_directory(name: str) -> None:
    with pytest.raises(ModelError, match="no path inside a model directory"):
        parse_record("somewhere", json.dumps({"source": "x", "files": {name: {"bytes": 1, "sha256": "0" * 64}}}))


def test_the_catalogue_names_what_serving_reads() -> None:
    catalogue = read_catalogue(CATALOGUE)
    needed = {file.path for file in catalogue.files if not file.optional}
    assert needed >= {"cosyvoice2.yaml", "llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v2.onnx"}
    assert {name.rpartition("/")[2] for name in needed if "/" in name} == {
        "config.json",
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
    }
    assert catalogue.repositories["modelscope"].name == "iic/CosyVoice2-0.5B"


def test_the_command_fetches_from_a_mirror_and_fails_with_one_object(server: FileServer, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.toml"
    names = "".join(f'[files."{path[1:]}"]\nfor = "a test"\nabout = 1\n' for path in FILES)
    hubs = "".join(f'[{hub}]\nrepository = "a/b"\nrevision = "main"\n' for hub in ("huggingface", "modelscope"))
    catalogue.write_text(f'what = "a test"\n{hubs}{names}')
    command = [
        sys.executable,
        "-m",
        "cosyserve",
        "model",
        "download",
        str(tmp_path / "model"),
        "--catalogue",
        str(catalogue),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    done = call("--mirror", server.address)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bytes"], result["trusted_on_first_use"]) == (len(LARGE) + len(SMALL), ["cosyvoice2.yaml", "llm.pt"])
    assert "llm.pt" in done.stderr
    failed = call("--mirror", str(tmp_path / "nowhere"))
    assert (failed.returncode, failed.stderr) == (1, "")
    assert json.loads(failed.stdout)["error"]["message"] == f"{tmp_path / 'nowhere'}: no such directory"
