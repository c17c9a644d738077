"""The engine cache with real processes: who builds, who waits, what a killed builder leaves, what a
damaged file does.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.engines.engine_cache import Engine, EngineCache, EngineKey
from cosyserve.file_lock import MANIFEST, exclusive_lock, waiting_lock

ROOT = Path(__file__).parents[4]
KEY = EngineKey("token2wav.estimator", {"gpu": "NVIDIA H200", "tensorrt": "10.13.3", "precision": "fp16"})
BUILDER = """
import os, sys, time
from pathlib import Path
from cosyserve.engines.engine_cache import EngineCache, EngineKey
root, log, gate = (Path(each) for each in sys.argv[1:])
def note(line):
    with log.open("a") as stream: stream.write(line + chr(10))
def build(directory):
    note(f"built by {os.getpid()}")
    (directory / "estimator.plan").write_bytes(b"half")
    note("half")
    while not gate.exists(): time.sleep(0.01)
    (directory / "estimator.plan").write_bytes(b"half and half")
key = EngineKey("token2wav.estimator", {"gpu": "NVIDIA H200", "tensorrt": "10.13.3", "precision": "fp16"})
engine = EngineCache(root, on_wait=note).obtain(key, build)
note(f"has {engine.file('estimator.plan').read_bytes().decode()}")
"""


def builder(root: Path, log: Path, gate: Path) -> "subprocess.Popen[bytes]":
    """A process that obtains the engine, building it where it has to; its build ends once `gate` is
    there.
    """
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(root), str(log), str(gate)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for(log: Path, line: str) -> None:
    for _ in range(1000):
        if log.exists() and line in log.read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"no {line!r} in {log.read_text() if log.exists() else 'nothing'}")


def obtain(cache: EngineCache, text: str, key: EngineKey = KEY) -> Engine:
    def build(directory: Path) -> None:
        (directory / "estimator.plan").write_text(text)

    return cache.obtain(key, build)


def test_two_processes_that_start_at_once_build_once(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    running = [builder(tmp_path / "engines", log, gate) for _ in range(2)]
    wait_for(log, "waiting for")
    gate.touch()
    assert [process.wait(30) for process in running] == [0, 0]
    lines = log.read_text().splitlines()
    assert sum(line.startswith("built by") for line in lines) == 1
    assert lines.count("has half and half") == 2
    waited = [line for line in lines if line.startswith("waiting")]
    assert len(waited) == 1
    assert waited[0].endswith("to finish engine token2wav.estimator")


def test_a_builder_that_is_killed_leaves_nothing_to_be_found(tmp_path: Path) -> None:
    root, log = tmp_path / "engines", tmp_path / "log"
    process = builder(root, log, tmp_path / "never")
    wait_for(log, "half")
    waiter = builder(root, log, tmp_path)
    wait_for(log, f"waiting for process {process.pid}, at it since ")
    assert EngineCache(root).find(KEY) is None
    assert list(EngineCache(root).entries()) == []
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert (waiter.wait(30), log.read_text().count("built by")) == (0, 2)
    assert [path.name for path in root.iterdir() if path.is_dir()] == [KEY.directory_name]


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("estimator.plan", "fjrst", "has other bytes than were built"),
        ("estimator.plan", "firs", "has 4 bytes, 5 were built"),
        ("estimator.plan", None, "is missing"),
        (MANIFEST, '{"component": 1', "cannot be read: JSONDecodeError"),
        (MANIFEST, None, f"it has no {MANIFEST}"),
        (MANIFEST, {"files": {}}, "names no file"),
        (MANIFEST, {"files": {"estimator.plan": {"bytes": 4}}}, "cannot be read: KeyError"),
        (MANIFEST, {"files": ["estimator.plan"]}, "cannot be read: AttributeError"),
        (MANIFEST, {"files": {"../estimator.plan": {"bytes": 4, "sha256": ""}}}, "../estimator.plan is missing"),
        (MANIFEST, {"built": None}, "cannot be read: TypeError"),
    ],
)
def test_a_damaged_engine_is_built_again(
    tmp_path: Path, name: str, damage: str | dict[str, object] | None, reason: str
) -> None:
    """damage: another text of the file, other entries of a manifest; None: no file."""
    cache = EngineCache(tmp_path)
    damaged = obtain(cache, "first").file(name)
    if isinstance(damage, dict):
        damage = json.dumps(json.loads(damaged.read_text()) | damage)
    damaged.unlink()
    if damage is not None:
        damaged.write_text(damage)
    assert cache.find(KEY).reason.endswith(reason)
    assert obtain(cache, "second").file("estimator.plan").read_text() == "second"


@pytest.mark.parametrize(
    ("fact", "value"), [("gpu", "NVIDIA L40S"), ("tensorrt", "10.9.0"), ("precision", "bf16"), ("driver", "580.1")]
)
def test_another_machine_or_version_is_another_engine_and_says_why(tmp_path: Path, fact: str, value: str) -> None:
    cache = EngineCache(tmp_path)
    obtain(cache, "theirs")
    ours = replace(KEY, facts={**KEY.facts, fact: value})
    assert cache.find(ours) is None
    (refused,) = cache.refused(ours)
    assert refused.reason == f"{fact} is {value}, it was built for {KEY.facts.get(fact, 'none')}"
    assert obtain(cache, "ours", ours).file("estimator.plan").read_text() == "ours"
    assert obtain(cache, "never", KEY).file("estimator.plan").read_text() == "theirs"


def test_a_moved_engine_is_refused(tmp_path: Path) -> None:
    """A directory renamed to another key's name is not that key's engine."""
    cache, other = EngineCache(tmp_path), replace(KEY, facts={**KEY.facts, "gpu": "NVIDIA L4"})
    obtain(cache, "theirs").directory.rename(tmp_path / other.directory_name)
    assert cache.find(other).reason == "gpu is NVIDIA L4, it was built for NVIDIA H200"


def test_a_build_that_fails_publishes_nothing(tmp_path: Path) -> None:
    def fails(directory: Path) -> None:
        (directory / "estimator.plan").write_text("begun")
        raise RuntimeError("out of memory")

    cache = EngineCache(tmp_path)
    with pytest.raises(RuntimeError, match="out of memory"):
        cache.obtain(KEY, fails)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    with pytest.raises(OSError, match="wrote no file"):
        cache.obtain(KEY, lambda directory: None)


def test_threads_build_once_too(tmp_path: Path) -> None:
    cache, built = EngineCache(tmp_path), []

    def build(directory: Path) -> None:
        built.append(1)
        time.sleep(0.05)
        (directory / "estimator.plan").write_text("one")

    with ThreadPoolExecutor(8) as threads:
        engines = list(threads.map(lambda _: cache.obtain(KEY, build), range(8)))
    assert (len(engines), len(built)) == (8, 1)


def test_entries_are_listed(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    assert list(cache.entries()) == []
    obtain(cache, "four")
    (entry,) = cache.entries()
    assert (entry.key, entry.bytes, list(entry.files)) == (KEY, 4, ["estimator.plan"])


def test_a_lock_needs_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with (
        waiting_lock(tmp_path / "lock", "a test", lambda message: None),
        pytest.raises(BlockingIOError),
        exclusive_lock(tmp_path / "lock"),
    ):
        pass


def test_component_names_are_no_paths() -> None:
    for name in ("../up", "a/b", "", "Upper", ".hidden"):
        with pytest.raises(ValueError, match="component"):
            EngineKey(name, {})
