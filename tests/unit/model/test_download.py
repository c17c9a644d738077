"""Model files over HTTP: resumed, checked, refused in clear words. The server is real and on
loopback.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest.mock import Mock

import httpx2
import pytest
from huggingface_hub import close_session

from cosyserve.errors import ModelError
from cosyserve.generations.reading import GENERATIONS
from cosyserve.generations.separate_decoder import DECODERS
from cosyserve.model_directory import DECODER_YAML
from tests.unit.model.file_server import FileServer, Handler, serving, write_catalogue
from tests.unit.model.steps import ended
from tools.model import download
from tools.model.fetch.hubs import Directory, Hub, HuggingFace, Mirror, ModelScope
from tools.model.fetch.transfer import Transfer, stay_encrypted
from tools.model.fetch.wanted_files import (
    CATALOGUE,
    Repository,
    SizeAndHash,
    WantedFile,
    catalogue_of,
    parse_record,
    read_catalogue,
    read_record,
)

LARGE = bytes(range(256)) * 4096 * 3
SMALL = b"sample_rate: 24000\n"
FILES = {"/llm.pt": LARGE, "/cosyvoice2.yaml": SMALL}


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

    @property
    def large(self) -> Path:
        return self.target / "llm.pt"

    def begun(self, part: bytes, etag: str | None) -> None:
        """As an earlier run has left it."""
        self.target.mkdir()
        (self.target / "llm.pt.part").write_bytes(part)
        if etag is not None:
            (self.target / "llm.pt.etag").write_text(etag)

    def fetch(
        self,
        server: FileServer | Hub,
        files: tuple[WantedFile, ...] = WANTED,
        pins: Mapping[str, SizeAndHash] = MappingProxyType({}),
        *,
        check: bool = False,
    ) -> dict[str, SizeAndHash]:
        hub = server if isinstance(server, Hub) else Mirror(server.address, self.transfer)
        return download.fetch_all(self.target, hub, files, pins, check=check)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(dict(FILES)) as running:
        yield running


@pytest.fixture
def fetcher(tmp_path: Path) -> Fetcher:
    waits: list[float] = []
    troubles: list[str] = []
    transfer = Transfer(tries=3, pause=waits.append, on_trouble=troubles.append)
    return Fetcher(tmp_path / "model", waits, troubles, transfer)


def files_of(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_everything_comes_and_is_recorded_and_nothing_comes_twice(server: FileServer, fetcher: Fetcher) -> None:
    done = fetcher.fetch(server)
    assert fetcher.large.read_bytes() == LARGE
    assert done["llm.pt"] == SizeAndHash(len(LARGE), sha(LARGE))
    assert read_record(fetcher.target / "download.json") == done
    assert files_of(fetcher.target) == {"llm.pt", "cosyvoice2.yaml", "download.json", ".download.lock"}
    assert fetcher.fetch(server) == done
    assert len(server.asked("/llm.pt")) == len(server.asked("/cosyvoice2.yaml")) == 1


def test_a_connection_that_breaks_again_and_again_is_resumed(server: FileServer, fetcher: Fetcher) -> None:
    server.answers["/llm.pt"] = lambda handler, content: handler.part(content, handler.start, cut=700_000)
    fetcher.fetch(server)
    assert fetcher.large.read_bytes() == LARGE
    asked = [(request.headers.get("Range"), request.headers.get("If-Range")) for request in server.asked("/llm.pt")]
    assert asked == [(None, None), *((f"bytes={at}-", '"one"') for at in range(700_000, len(LARGE), 700_000))]
    assert len(fetcher.waits) == len(asked) - 1


def test_two_at_once_fetch_it_once(server: FileServer, fetcher: Fetcher) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: fetcher.fetch(server), range(2))
    assert first == second
    assert len(server.asked("/llm.pt")) == 1


def test_a_run_that_was_stopped_is_resumed_by_the_next(server: FileServer, fetcher: Fetcher) -> None:
    server.answers["/llm.pt"] = lambda handler, content: handler.part(content, handler.start, cut=1_000_000)
    fetcher.transfer.pause = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        fetcher.fetch(server)
    assert not fetcher.large.exists()
    assert (fetcher.target / "llm.pt.part").stat().st_size == 1_000_000
    server.answers.clear()
    fetcher.fetch(server)
    assert fetcher.large.read_bytes() == LARGE
    assert server.asked("/llm.pt")[-1].headers["Range"] == "bytes=1000000-"


@pytest.mark.parametrize(
    ("part", "etag", "sha256", "ranges"),
    [
        (LARGE, '"one"', None, [f"bytes={len(LARGE)}-"]),
        (b"old" * 1000, '"zero"', None, ["bytes=3000-"]),
        (b"\0" * 1000, None, sha(LARGE), ["bytes=1000-", None]),
    ],
    ids=["complete", "of a file that changed in between", "damaged"],
)
def test_a_part_is_resumed_or_fetched_from_the_start(
    server: FileServer, fetcher: Fetcher, part: bytes, etag: str | None, sha256: str | None, ranges: list[str | None]
) -> None:
    """Only a damaged part is noticed at its end, and fetched once more."""
    fetcher.begun(part, etag)
    assert fetcher.fetch(server, (wanted("llm.pt", sha256=sha256),))["llm.pt"].sha256 == sha(LARGE)
    assert fetcher.large.read_bytes() == LARGE
    assert [request.headers["Range"] for request in server.asked("/llm.pt")] == ranges
    assert ["does not fit, from the start" in trouble for trouble in fetcher.troubles] == [True] * (len(ranges) - 1)


def test_a_file_without_end_is_refused(server: FileServer, fetcher: Fetcher) -> None:
    def endless(handler: Handler, content: bytes) -> None:
        handler.protocol_version = "HTTP/1.0"
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = True

    server.answers["/llm.pt"] = endless
    with pytest.raises(ModelError, match="more than the 12 bytes that the file has"):
        fetcher.fetch(server, (wanted("llm.pt", size=12),))
    assert files_of(fetcher.target) == {".download.lock"}


def test_a_server_without_ranges_sends_the_whole_file(server: FileServer, fetcher: Fetcher) -> None:
    broken = iter([700_000])

    server.answers["/llm.pt"] = lambda handler, content: handler.part(content, 0, cut=next(broken, None))
    fetcher.fetch(server)
    assert fetcher.large.read_bytes() == LARGE


@pytest.mark.parametrize("shift", [-5, 5])
def test_a_wrong_range_is_never_joined(server: FileServer, fetcher: Fetcher, shift: int) -> None:
    def shifted(handler: Handler, content: bytes) -> None:
        start = handler.start
        handler.part(content, start + shift if start else 0, cut=None if start else 700_000)

    server.answers["/llm.pt"] = shifted
    with pytest.raises(ModelError, match="given up after 3 tries that brought nothing"):
        fetcher.fetch(server)
    assert sum("asked for bytes from 700000, the server sends bytes" in trouble for trouble in fetcher.troubles) == 1
    assert not fetcher.large.exists()


def test_no_server_at_all_is_given_up(fetcher: Fetcher) -> None:
    with pytest.raises(ModelError, match=r"no connection: .*refused"):
        fetcher.fetch(Mirror("http://127.0.0.1:9", fetcher.transfer))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            wanted("llm.pt", sha256="00" * 32),
            f"sent {len(LARGE)} bytes with sha256 {sha(LARGE)}, expected are any number of bytes with sha256 00",
        ),
        (wanted("llm.pt", size=12), f"the server has {len(LARGE)} bytes, expected are 12"),
    ],
    ids=["hash", "size"],
)
def test_a_wrong_file_is_refused_and_leaves_nothing(
    server: FileServer, fetcher: Fetcher, file: WantedFile, said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        fetcher.fetch(server, (file,))
    assert files_of(fetcher.target) == {".download.lock"}


def test_what_came_first_is_trusted_and_nothing_else_later(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.fetch(server)
    fetcher.large.unlink()
    server.files["/llm.pt"] = LARGE[::-1]
    with pytest.raises(ModelError, match=f"expected are {len(LARGE)} bytes with sha256 {sha(LARGE)}"):
        fetcher.fetch(server)


def test_pins_of_another_machine_are_met_or_refused(server: FileServer, fetcher: Fetcher) -> None:
    assert fetcher.fetch(server, WANTED, {"llm.pt": SizeAndHash(len(LARGE), sha(LARGE))})
    fetcher.large.write_bytes(LARGE[:-1] + b"?")
    (fetcher.target / "download.json").unlink()
    with pytest.raises(ModelError, match=r"llm\.pt: has .* with sha256 .* remove it to fetch it again"):
        fetcher.fetch(server, WANTED, {"llm.pt": SizeAndHash(len(LARGE), sha(LARGE))})


def test_a_file_that_was_damaged_on_the_disk_is_found_by_check(server: FileServer, fetcher: Fetcher) -> None:
    fetcher.fetch(server)
    fetcher.large.write_bytes(LARGE[:-1] + b"?")
    with pytest.raises(ModelError, match="remove it to fetch it again"):
        fetcher.fetch(server, check=True)


@pytest.mark.parametrize(
    ("answer", "said", "waits"),
    [
        (lambda handler, content: handler.answer(404), "HTTP 404, no such file, repository or revision", []),
        (lambda handler, content: handler.answer(401), "HTTP 401, it asks for a token: set HF_TOKEN", []),
        (lambda handler, content: handler.answer(403), "accept the model's", []),
        (
            lambda handler, content: handler.part(content, 0, cut=0),
            r"llm\.pt: given up after 3 tries that brought nothing: the connection broke",
            [2.0, 4.0],
        ),
    ],
    ids=["404", "401", "403", "nothing comes"],
)
def test_a_refusal_says_what_to_do_and_only_what_may_pass_is_repeated(
    server: FileServer, fetcher: Fetcher, answer: Callable[[Handler, bytes], None], said: str, waits: list[float]
) -> None:
    server.answers["/llm.pt"] = answer
    with pytest.raises(ModelError, match=said):
        fetcher.fetch(server)
    assert (len(server.asked("/llm.pt")), fetcher.waits) == (1 + len(waits), waits)


def test_an_optional_file_may_be_missing(server: FileServer, fetcher: Fetcher) -> None:
    assert set(fetcher.fetch(server, (*WANTED, wanted("spk2info.pt", optional=True)))) == {"llm.pt", "cosyvoice2.yaml"}
    assert not [name for name in files_of(fetcher.target) if name.startswith("spk2info")]


def test_a_busy_server_is_asked_again_when_it_said(server: FileServer, fetcher: Fetcher) -> None:
    def busy(handler: Handler, content: bytes) -> None:
        if len(server.asked("/llm.pt")) < 3:
            handler.answer(503, {"Retry-After": "7"})
        else:
            handler.usual(content)

    server.answers["/llm.pt"] = busy
    fetcher.fetch(server)
    assert fetcher.waits == [7.0, 7.0]


def test_room_on_the_disk_comes_first(server: FileServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"0\.00 GB free, 0\.0\d GB are needed"):
        fetcher.fetch(server)
    assert not server.asked("/llm.pt")


def hugging_face(server: FileServer, fetcher: Fetcher, *entries: dict[str, object]) -> HuggingFace:
    """A repository with this listing, and both files."""
    server.files = {f"/owner/name/resolve/main{path}": data for path, data in FILES.items()}
    server.files["/api/models/owner/name/tree/main?recursive=true&expand=false"] = json.dumps(entries).encode()
    return HuggingFace(Repository("owner/name", "main"), fetcher.transfer, server.address, "secret")


def test_hugging_face_is_asked_for_sizes_and_hashes(server: FileServer, fetcher: Fetcher) -> None:
    large: dict[str, object] = {"type": "file", "path": "llm.pt", "size": 134, "oid": "e" * 40}
    large["lfs"] = {"oid": sha(LARGE), "size": len(LARGE), "pointerSize": 134}
    small = {"type": "file", "path": "cosyvoice2.yaml", "size": len(SMALL), "oid": "f" * 40}
    hub = hugging_face(server, fetcher, large, small, {"type": "directory", "path": "asset", "oid": "d" * 40})
    fetcher.fetch(hub)
    assert fetcher.large.read_bytes() == LARGE
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer secret"}
    fetcher.large.unlink()
    (fetcher.target / "download.json").unlink()
    server.files["/owner/name/resolve/main/llm.pt"] = LARGE[::-1]
    with pytest.raises(ModelError, match=f"expected are {len(LARGE)} bytes with sha256 {sha(LARGE)}"):
        fetcher.fetch(hub)


def test_modelscope_is_asked_in_its_own_way(server: FileServer, fetcher: Fetcher) -> None:
    hub = ModelScope(Repository("iic/name", "master"), fetcher.transfer, server.address, None)
    entries = [
        {"Path": name, "Type": "blob", "Size": len(data), "Sha256": sha(data)}
        for name, data in (("llm.pt", LARGE), ("cosyvoice2.yaml", SMALL))
    ]
    server.files = {
        "/api/v1/models/iic/name/repo/files?Revision=master&Recursive=true": json.dumps(
            {"Code": 200, "Data": {"Files": entries}}
        ).encode(),
        "/api/v1/models/iic/name/repo?Revision=master&FilePath=llm.pt": LARGE,
        "/api/v1/models/iic/name/repo?Revision=master&FilePath=cosyvoice2.yaml": SMALL,
    }
    assert fetcher.fetch(hub)["llm.pt"].sha256 == sha(LARGE)


def test_a_repository_without_a_needed_file_is_refused(server: FileServer, fetcher: Fetcher) -> None:
    hub = hugging_face(server, fetcher, {"type": "file", "path": "README.md", "size": 3, "oid": "f" * 40})
    with pytest.raises(ModelError, match=r"owner/name@main: has no cosyvoice2\.yaml, which serving needs"):
        fetcher.fetch(hub)


def test_a_token_stays_with_its_host(server: FileServer, fetcher: Fetcher) -> None:
    hub = hugging_face(server, fetcher, {"type": "file", "path": "llm.pt", "size": len(LARGE), "oid": "f" * 40})
    elsewhere = server.address.replace("127.0.0.1", "localhost")
    server.files |= {"/moved": b"", "/content": LARGE}
    moves = {"/owner/name/resolve/main/llm.pt": f"{server.address}/moved", "/moved": f"{elsewhere}/content"}
    server.answers = dict.fromkeys(
        moves, lambda handler, content: handler.answer(302, {"Location": moves[handler.path]})
    )
    fetcher.fetch(hub, (wanted("llm.pt"),))
    assert server.asked("/moved")[0].headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in server.asked("/content")[0].headers


def test_a_redirect_keeps_the_encryption() -> None:
    request = httpx2.Request("GET", "https://models.invalid/llm.pt")
    stay_encrypted(httpx2.Response(302, headers={"Location": "https://elsewhere.invalid/"}, request=request))
    with pytest.raises(ModelError, match="redirects to the unencrypted http://elsewhere"):
        stay_encrypted(httpx2.Response(302, headers={"Location": "http://elsewhere.invalid/"}, request=request))


def test_the_proxy_of_the_environment_is_used(
    server: FileServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.files = {f"http://models.invalid{path}": data for path, data in FILES.items()}
    close_session()
    fetcher.fetch(Mirror("http://models.invalid", fetcher.transfer))
    close_session()
    assert fetcher.large.read_bytes() == LARGE


def test_a_mirror_directory_is_copied_and_checked(server: FileServer, fetcher: Fetcher, tmp_path: Path) -> None:
    fetcher.fetch(server)
    source = Directory(fetcher.target)

    def copy(name: str, *more: WantedFile, check: bool = False) -> dict[str, SizeAndHash]:
        return download.fetch_all(tmp_path / name, source, (*WANTED, *more), {}, check=check)

    copied = copy("copy")
    assert copied == read_record(fetcher.target / "download.json")
    (tmp_path / "copy" / "llm.pt").write_bytes(LARGE[:-1] + b"?")
    assert copy("copy") == copied, "a size that is right is believed"
    with pytest.raises(ModelError, match="remove it to fetch it again"):
        copy("copy", check=True)
    fetcher.large.write_bytes(b"?" + LARGE[1:])
    with pytest.raises(ModelError, match="expected"):
        copy("another")
    assert not (tmp_path / "another" / "llm.pt").exists()
    with pytest.raises(ModelError, match=r"has no hift\.pt"):
        copy("third", wanted("hift.pt"))
    (tmp_path / "empty").mkdir()
    for folder, said in (("empty", "no files in it"), ("nowhere", "no such directory")):
        with pytest.raises(ModelError, match=said):
            Directory(tmp_path / folder).known()


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


def test_every_generation_has_a_catalogue_of_its_files() -> None:
    for generation in GENERATIONS:
        catalogue = read_catalogue(catalogue_of(generation))
        needed = {file.path for file in catalogue.files if not file.optional}
        assert {generation.yaml_names[0], generation.speech_tokenizer, "llm.pt", "flow.pt", "hift.pt"} <= needed
        others = {name for each in GENERATIONS if each is not generation for name in each.yaml_names}
        assert not others & needed


def test_a_decoder_is_fetched_with_its_folder_and_nothing_else() -> None:
    for decoder in DECODERS:
        paths = [file.path for file in read_catalogue(catalogue_of(decoder)).files]
        assert paths == [f"token2wav/{name}" for name in (DECODER_YAML, "flow.pt", "hift.pt")]


def test_the_command_fetches_from_a_mirror_and_fails_with_one_object(server: FileServer, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.toml"
    write_catalogue(catalogue, *(path[1:] for path in FILES))
    words = ("download", str(tmp_path / "model"), "--catalogue", str(catalogue), "--json", "--mirror")
    status, out, errors = ended(*words, server.address)
    assert status == 0, errors
    result = json.loads(out)
    assert (result["bytes"], result["trusted_on_first_use"]) == (len(LARGE) + len(SMALL), ["cosyvoice2.yaml", "llm.pt"])
    assert "llm.pt" in errors
    status, out, errors = ended(*words, str(tmp_path / "nowhere"))
    assert (status, errors) == (1, "")
    assert json.loads(out)["error"]["message"] == f"{tmp_path / 'nowhere'}: no such directory"
