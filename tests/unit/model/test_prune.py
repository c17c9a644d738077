"""What nothing uses goes, what runs stays, and the bytes are reported."""

import errno
import fcntl
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from cosyserve.engines import gpu_facts
from cosyserve.engines.engine_cache import Engine, EngineCache, EngineKey
from cosyserve.file_lock import MANIFEST, is_locked, shared_engine_lock, waiting_lock
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import model_hash
from services.token2wav.decoders.engine_identity import WEIGHTS
from tests.unit.model.steps import DEMO, TINY
from tools.model import prune
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert
from tools.model.prune import Inventory, judge_conversions, judge_engines, model_hashes, remove

H200 = {"gpu": "NVIDIA H200", "compute_capability": "9.0", "driver": "570.1"}
HERE = Inventory(models=frozenset({"mine"}), gpus=(H200,), libraries={"tensorrt": "10.13.3.9.post1"})
BUILT = {"model": "mine", "tensorrt": "10.13.3.9", **H200}


SILENT = Inventory(models=None, gpus=({**H200, "compute_capability": "[N/A]"},))


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "engines")


def reasons(cache: EngineCache, present: Inventory) -> list[str | None]:
    return [verdict.reason for verdict in judge_engines(cache, present)]


def new_entry(cache: EngineCache, **facts: str) -> Engine:
    return cache.obtain(
        EngineKey("token2wav.filter", {**BUILT, **facts}),
        lambda folder: (folder / "plan").write_bytes(b"x" * 100) and None,
    )


def test_hashes_are_those_of_the_services() -> None:
    directory = ModelDirectory(DEMO)
    assert model_hashes([DEMO]) == {model_hash(directory), directory.content_hash((*WEIGHTS, directory.yaml_name))}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"precision": "fp16"}, None),
        ({"driver": "unknown"}, None),
        ({"model": "another"}, "made of model another, which is none of those given"),
        ({"tensorrt": "10.10.0"}, "built with tensorrt 10.10.0, here is 10.13.3.9.post1"),
        ({"driver": "550.9"}, "built for NVIDIA H200, driver 550.9; here: NVIDIA H200, driver 570.1"),
        ({"gpu": "NVIDIA L20"}, "built for NVIDIA L20, driver 570.1; here: NVIDIA H200, driver 570.1"),
        ({"gpu": "NVIDIA L20", "compatibility": "hardware"}, None),
        ({"gpu": "NVIDIA H200 MIG 1g.18gb"}, None),
        (
            {"gpu": "NVIDIA L20 MIG 1g.5gb"},
            "built for NVIDIA L20 MIG 1g.5gb, driver 570.1; here: NVIDIA H200, driver 570.1",
        ),
        ({"writer": "0"}, "written by another release, which this one does not load"),
        ({"writer": "0", "compatibility": "hardware"}, "written by another release, which this one does not load"),
        ({"tensorrt_llm": "1.0.0", "tensorrt": "10.11.0"}, None),
    ],
)
def test_an_entry_goes_for_these_reasons_alone(cache: EngineCache, facts: dict[str, str], reason: str | None) -> None:
    engine = new_entry(cache, **facts)
    (verdict,) = judge_engines(cache, HERE)
    assert (verdict.path, verdict.bytes, verdict.reason) == (engine.directory, 100, reason)


def test_what_cannot_be_known_here_is_no_reason(cache: EngineCache) -> None:
    new_entry(cache, model="another", gpu="NVIDIA L20", tensorrt="9.0")
    assert reasons(cache, Inventory(models=None)) == [None]
    stays = new_entry(cache)
    assert [verdict.path for verdict in judge_engines(cache, SILENT) if verdict.reason is None] == [stays.directory]


def test_what_a_service_holds_stays(cache: EngineCache) -> None:
    engine = new_entry(cache, model="another")
    (before,) = judge_engines(cache, HERE)
    assert before.reason is not None
    with shared_engine_lock(engine.directory), shared_engine_lock(engine.directory):
        assert is_locked(engine.file(MANIFEST))
        (verdict,) = judge_engines(cache, HERE)
        assert (verdict.reason, verdict.held) == (None, True)
        assert not remove(before), "a process has begun to use it since it was judged"
    assert not is_locked(engine.file(MANIFEST))
    assert (remove(before), engine.directory.exists()) == (True, False)
    with pytest.raises(FileNotFoundError), shared_engine_lock(engine.directory):
        pass


def test_leftovers_of_killed_builds_go_unless_one_is_building(cache: EngineCache) -> None:
    engine = new_entry(cache)
    left = cache.root / f".building-{engine.directory.name}-4711-123456"
    left.mkdir()
    (left / "half").write_bytes(b"y" * 50)
    with waiting_lock(cache.root / f".{engine.directory.name}.lock", "a test", lambda line: None):
        assert [verdict.path for verdict in judge_engines(cache, HERE)] == [engine.directory]
    assert [(verdict.path, verdict.bytes) for verdict in judge_engines(cache, HERE)] == [
        (engine.directory, 100),
        (left, 50),
    ]


def test_conversions_of_other_models_and_cut_off_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "conversions"
    for model, name in ((TINY, "tiny"), (DEMO, "demo")):
        convert(model, "vllm", Precision.BFLOAT16, folder / name)
    (folder / "notes").mkdir()
    left = folder / ".demo.0123456789ab.partial"
    left.mkdir()
    present = Inventory(models=model_hashes([TINY]))
    goes = {verdict.path.name: verdict for verdict in judge_conversions(folder, present)}
    assert set(goes) == {"tiny", "demo", left.name}, "what is not ours is not judged"
    assert (goes["tiny"].reason is None, goes["demo"].reason is None) == (True, False)
    with waiting_lock(folder / ".demo.lock", "a test", lambda line: None):
        assert left.name not in {verdict.path.name for verdict in judge_conversions(folder, present)}
        assert not remove(goes[left.name]), "a conversion has been resumed since it was judged"
    with shared_engine_lock(folder / "demo"):
        (held,) = [verdict for verdict in judge_conversions(folder, present) if verdict.path.name == "demo"]
        assert (held.reason, held.held) == (None, True)
    assert remove(goes[left.name])
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"tiny", "demo", "notes"}


def test_what_a_prune_that_was_cut_off_left_goes_with_the_next(tmp_path: Path, cache: EngineCache) -> None:
    engine = new_entry(cache, model="another")
    engine.directory.rename(cache.root / f".broken-{engine.directory.name}-4711-123456")
    (tmp_path / ".broken-llm-hf-4711-123456").mkdir()
    for verdicts in (judge_engines(cache, HERE), judge_conversions(tmp_path, HERE)):
        (verdict,) = verdicts
        assert remove(verdict)
        assert not verdict.path.exists()
        assert remove(verdict), "another prune was faster"


def test_tensorrt_of_one_cuda_is_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gpu_facts,
        "library_versions",
        lambda *names: {"tensorrt-cu12": "10.13.0.35"} if "tensorrt-cu12" in names else {},
    )
    assert gpu_facts.tensorrt_version() == "10.13.0.35"


def test_a_shared_file_system_without_locks_is_served_from(cache: EngineCache, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_entry(cache)
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "refused")))
    with shared_engine_lock(engine.directory):
        pass
    with pytest.raises(OSError, match="no file locks here: whether it is in use is unknown"):
        list(judge_engines(cache, HERE))
    with pytest.raises(OSError, match="choose a directory on a local disk"):
        new_entry(cache, model="another")
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.EINTR, "refused")))
    with pytest.raises(InterruptedError), shared_engine_lock(engine.directory):
        pass


def test_the_command_reports_the_bytes_and_removes_only_when_meant(
    cache: EngineCache, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "machine_gpus", list)
    for module in (gpu_facts, prune):
        monkeypatch.setattr(module, "library_versions", lambda *names: {})
    mine = next(iter(model_hashes([TINY])))
    stays, goes = new_entry(cache, model=mine), new_entry(cache, model="another")
    arguments = ["--model", str(TINY), "--engines", str(cache.root)]
    assert prune.main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "100 B would be freed: 1 of 2 would go"
    assert goes.directory.exists()
    assert prune.main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["freed_bytes"], [entry["path"] for entry in result["removed"]]) == (100, [str(goes.directory)])
    assert (goes.directory.exists(), stays.directory.exists()) == (False, True)
    shutil.rmtree(cache.root)
    assert prune.main(arguments) == 0
    assert capsys.readouterr().out == "0 B freed: 0 of 0 went\n"
