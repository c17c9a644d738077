"""Memory, disk, files, ports and clock of machines that are short of them."""

import socket
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from cosyserve.errors import SettingsError
from cosyserve.host.doctor import host_checks
from cosyserve.host.doctor.finding import State, problem
from cosyserve.host.doctor.host_checks import (
    GIB,
    check_clock,
    check_cores,
    check_disk,
    check_inner_ports,
    check_memory,
    check_open_files,
    check_public_port,
    check_python,
    clock_is_held,
)
from cosyserve.host.hardware import memory_bytes, usable_cores
from tests.unit.cosyserve.host.fake_gpu import machine


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10), "problem"), ((3, 11), "ok"), ((3, 12), "ok"), ((3, 13), "problem")]
)
def test_python(version: tuple[int, int], state: str) -> None:
    assert check_python(version).state == state


def test_cores() -> None:
    assert check_cores(machine(cores=2)).state is State.OK
    assert check_cores(machine(cores=0.5)).state is State.NOTE


def test_a_containers_share_of_the_cores_and_memory(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) >= 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path) >= 1
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
    assert memory_bytes(tmp_path, meminfo) == (8 * GIB, 4 * GIB)
    (tmp_path / "memory.max").write_text("2147483648\n")
    (tmp_path / "memory.current").write_text("1610612736\n")
    assert memory_bytes(tmp_path, meminfo) == (2 * GIB, GIB // 2)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path, meminfo) == (8 * GIB, 4 * GIB)


def test_memory_counts_the_weights_twice() -> None:
    assert check_memory(machine(memory=3 * GIB), 31 << 20).state is State.OK
    found = check_memory(machine(memory=3 * GIB), 2 * GIB)
    assert found.state is State.PROBLEM
    assert "6.0 wanted" in found.observed


@pytest.mark.parametrize(
    ("free", "has_gpu", "state"), [(1, False, "ok"), (1, True, "note"), (0.2, False, "problem"), (50, True, "ok")]
)
def test_disk(free: float, has_gpu: bool, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = Mock(return_value=SimpleNamespace(free=int(free * GIB)))
    monkeypatch.setattr(host_checks.shutil, "disk_usage", usage)
    assert check_disk(tmp_path / "not" / "there" / "yet", has_gpu).state == state
    usage.assert_called_once_with(tmp_path)


@pytest.mark.parametrize(("limit", "state"), [(64, "problem"), (1024, "note"), (65536, "ok"), (-1, "ok")])
def test_open_files(limit: int, state: str) -> None:
    assert check_open_files(limit).state == state


def test_a_port_that_somebody_has() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        listen = f"127.0.0.1:{holder.getsockname()[1]}"
        found = check_public_port(listen)
        assert found.state is State.PROBLEM
        assert f"ss -ltnp 'sport = :{holder.getsockname()[1]}'" in found.fix
    assert check_public_port(listen).state is State.OK
    assert check_inner_ports().state is State.OK
    with pytest.raises(SettingsError, match="is not an address"):
        check_public_port("nowhere")


def test_too_few_inner_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "free_ports", Mock(side_effect=OSError("fewer than 8 free ports")))
    assert check_inner_ports() == problem(
        "inner ports",
        "fewer than 8 free ports",
        means="the services cannot reach each other",
        fix="ss -ltn | wc -l; end what holds them",
    )


def test_clock(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.touch()
    written = ours.stat().st_mtime
    assert check_clock(ours, written + 10, synchronised=True).state is State.OK
    assert check_clock(ours, written + 10, synchronised=False).state is State.NOTE
    assert check_clock(ours, written - 3600, synchronised=True).state is State.PROBLEM
    assert clock_is_held() in (True, False, None)
