"""Conversions appear whole or not at all, are resumed, and never replace what is not theirs."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosyserve.errors import ModelError
from cosyserve.file_lock import MANIFEST
from tools.model.output.complete_directory import Assembly, damage, publish, read_manifest, staging

IDENTITY = {"kind": "a test", "source": "one"}
CONTENT = {"a.bin": b"a" * 1000, "folder/b.bin": b"b" * 2000}


def maker(log: list[str]) -> Callable[[Assembly], None]:
    def make(assembly: Assembly) -> None:
        for name, content in CONTENT.items():
            assembly.file(name, lambda path, name=name, content=content: (log.append(name), path.write_bytes(content)))  # type: ignore[misc]

    return make


def made(target: Path, identity: dict[str, str] = IDENTITY, **how: Any) -> list[str]:
    """The files that had to be made."""
    log: list[str] = []
    publish(target, identity, maker(log), **how)
    return log


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_it_is_made_once_and_then_found(tmp_path: Path) -> None:
    log: list[str] = []
    manifest, is_new = publish(tmp_path / "out", IDENTITY, maker(log))
    assert is_new
    assert set(content(tmp_path / "out")) == {*CONTENT, "manifest.json"}
    assert (manifest.size, manifest.identity) == (3000, IDENTITY)
    assert publish(tmp_path / "out", IDENTITY, maker(log)) == (manifest, False)
    assert log == list(CONTENT)
    assert damage(tmp_path / "out", manifest, thorough=True) is None


def test_a_run_that_failed_is_resumed_and_was_never_seen(tmp_path: Path) -> None:
    log: list[str] = []

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    def broken(assembly: Assembly) -> None:
        assembly.file("a.bin", lambda path: (log.append("a.bin"), path.write_bytes(CONTENT["a.bin"])))
        assembly.file("folder/b.bin", fail)

    with pytest.raises(OSError, match="no space left"):
        publish(tmp_path / "out", IDENTITY, broken)
    assert not (tmp_path / "out").exists()
    assert [*log, *made(tmp_path / "out")] == ["a.bin", "folder/b.bin"]
    assert {name: data for name, data in content(tmp_path / "out").items() if name != "manifest.json"} == CONTENT


def slow_maker(target: Path, mark: Path) -> None:
    def make(assembly: Assembly) -> None:
        assembly.file("a.bin", lambda path: path.write_bytes(CONTENT["a.bin"]))
        assembly.file("folder/b.bin", lambda path: (path.write_bytes(b"half"), mark.touch(), time.sleep(60)))

    publish(target, IDENTITY, make)


def test_a_process_that_is_killed_leaves_nothing_that_is_taken_for_done(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = multiprocessing.get_context("fork").Process(target=slow_maker, args=(tmp_path / "out", mark))
    process.start()
    while not mark.exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not (tmp_path / "out").exists()
    assert made(tmp_path / "out") == ["folder/b.bin"]
    assert not staging(tmp_path / "out", IDENTITY).exists()


def one_of_many(target: Path, log: Path) -> None:
    def make(assembly: Assembly) -> None:
        with log.open("a") as stream:
            stream.write("made\n")
        for name, data in CONTENT.items():
            assembly.file(name, lambda path, data=data: (path.write_bytes(data), time.sleep(0.1)))  # type: ignore[misc]

    publish(target, IDENTITY, make)


def test_of_several_processes_one_makes_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=one_of_many, args=(tmp_path / "out", tmp_path / "log")) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text() == "made\n"


def test_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    for replace in (False, True):
        with pytest.raises(ModelError, match="was not made by this command"):
            made(tmp_path / "out", replace=replace)
    made(tmp_path / "mine")
    with pytest.raises(ModelError, match=r"holds another conversion \(source one\); give another --output, or --force"):
        made(tmp_path / "mine", {**IDENTITY, "source": "two"})
    manifest, is_new = publish(tmp_path / "mine", {**IDENTITY, "source": "two"}, maker([]), replace=True)
    assert (is_new, manifest.identity["source"]) == (True, "two")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith((".partial", ".superseded"))] == []


def test_the_working_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="is the working directory; name one inside it"):
        made(Path())
    assert made(Path("here/../out"))
    assert read_manifest(tmp_path / "out") is not None


def test_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    made(tmp_path / "out")
    (tmp_path / "out" / "a.bin").write_bytes(b"short")
    assert made(tmp_path / "out") == list(CONTENT)
    assert content(tmp_path / "out")["a.bin"] == CONTENT["a.bin"]


def test_a_cut_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    made(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".out.superseded")
    assert made(tmp_path / "out") == []
    assert not (tmp_path / ".out.superseded").exists()


def test_room_is_checked_first(tmp_path: Path) -> None:
    log: list[str] = []
    with pytest.raises(ModelError, match="GB are needed"):
        publish(tmp_path / "out", IDENTITY, maker(log), needed=1 << 60)
    assert log == []


@pytest.mark.parametrize("text", ["", "{}", '{"files": {"a": {}}, "identity": {}}', "[1]"])
def test_a_broken_manifest_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    assert read_manifest(tmp_path) is None
    (tmp_path / MANIFEST).write_text(json.dumps({"identity": IDENTITY, "files": {}}))
    assert read_manifest(tmp_path) is not None
