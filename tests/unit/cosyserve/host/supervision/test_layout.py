"""Which device and which port each process of a stack gets, and what is refused before anything
starts.
"""

import socket
from pathlib import Path
from typing import Any

import pytest

from cosyserve.commands.terminal.service_lists import devices, ports
from cosyserve.errors import SettingsError
from cosyserve.host.supervision import layout as module
from cosyserve.host.supervision.layout import ProcessSpec, _bind_error, free_ports, lay_out
from services.orchestrator.processes.parent import local_socket
from tests.stacks.up_process import DEMO

LISTEN = "127.0.0.1:0"


@pytest.fixture(autouse=True)
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "gpu_count", lambda: 4)


def laid(
    replicas: dict[str, int] | None = None, environ: dict[str, str] | None = None, listen: str = LISTEN, **how: Any
) -> list[ProcessSpec]:
    return lay_out(DEMO, listen, replicas or {}, None, how.pop("device", None), 1.0, environ or {}, **how)


def seen(places: list[ProcessSpec]) -> dict[str, tuple[str | None, str | None]]:
    """The device that each process is told, and the GPUs that it sees."""
    return {
        place.label: (
            place.environ.get(f"COSYSERVE_{place.service.upper()}_DEVICE"),
            place.environ.get("CUDA_VISIBLE_DEVICES"),
        )
        for place in places
    }


def test_each_replica_sees_its_own_gpu_and_there_are_as_many_as_devices() -> None:
    assert seen(laid(devices=devices("token2wav=cuda:0,cuda:3,cpu, llm=cuda:1"), device="cuda")) == {
        "frontend.0": (None, None),
        "llm.0": ("cuda", "1"),
        "token2wav.0": ("cuda", "0"),
        "token2wav.1": ("cuda", "3"),
        "token2wav.2": ("cpu", None),
        "orchestrator.0": (None, None),
    }


def test_gpus_are_counted_among_the_visible_ones() -> None:
    places = laid(devices=devices("token2wav=cuda:1,cuda:0"), environ={"CUDA_VISIBLE_DEVICES": "GPU-a, 2,-1"})
    assert [seen(places)[f"token2wav.{replica}"][1] for replica in (0, 1)] == ["2", "GPU-a"]
    assert seen(places)["llm.0"] == (None, "GPU-a, 2,-1")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"devices": {"frontend": ["cpu"]}},
            "'frontend' has no engine; services that can have devices: llm, token2wav",
        ),
        ({"devices": {"llm": ["gpu0"]}}, "'gpu0' of llm is no device; expected cpu, or cuda:N such as cuda:0"),
        ({"devices": {"llm": ["cuda:4"]}}, "llm is to use cuda:4, but this machine has 4 NVIDIA GPUs$"),
        (
            {"devices": {"llm": ["cuda:1"]}, "environ": {"CUDA_VISIBLE_DEVICES": "3"}},
            "llm is to use cuda:1, but this machine has 4 NVIDIA GPUs, of which CUDA_VISIBLE_DEVICES=3 leaves 1",
        ),
        (
            {"devices": {"token2wav": ["cuda:0", "cuda:1"]}, "replicas": {"token2wav": 3}},
            "names 2 for token2wav and --replicas asks for 3",
        ),
        ({"devices": {"token2wav": ["cpu"] * 17}}, "17 replicas of token2wav were asked for, allowed are 1 to 16"),
        ({"ports": {"orchestrator": [50051]}}, "'orchestrator' is no stage; there are frontend, llm, token2wav"),
        ({"ports": {"llm": [70000]}}, r"llm\.0 would listen on port 70000; allowed are 1 to 65535"),
        ({"ports": {"llm": [1, 2]}}, "names 2 ports for llm, which has 1 replica$"),
    ],
)
def test_what_cannot_be_laid_out(how: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        laid(**how)


def test_stages_listen_where_they_are_told() -> None:
    first = next(
        port for port in free_ports(200) if not any(_bind_error("127.0.0.1", port + step) for step in range(6))
    )
    places = laid({"token2wav": 3}, ports=ports(f"frontend={first},token2wav={first + 1},{first + 3}"))
    found = {place.label: place.port for place in places}
    assert (found["frontend.0"], found["token2wav.0"], found["token2wav.1"], found["token2wav.2"]) == (
        first,
        first + 1,
        first + 3,
        first + 4,
    )
    assert len(set(found.values())) == len(found)
    assert places[-1].environ["COSYSERVE_ORCHESTRATOR_TOKEN2WAV"] == ",".join(
        f"127.0.0.1:{first + step}" for step in (1, 3, 4)
    )


def test_ports_that_are_taken_are_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"llm\.0 cannot listen on 127\.0\.0\.1:{port}: it is in use"):
            laid(ports={"llm": [port]})
    port = free_ports(1)[0]
    with pytest.raises(SettingsError, match=rf"token2wav\.0 would listen on port {port}, which llm\.0 has"):
        laid(ports={"llm": [port], "token2wav": [port]})
    with pytest.raises(SettingsError, match=rf"llm\.0 would listen on port {port}, which the public door has"):
        laid(ports={"llm": [port]}, listen=f"127.0.0.1:{port}")


def health(**addresses: str) -> dict[str, str]:
    return {f"COSYSERVE_{service.upper()}_HEALTH_LISTEN": address for service, address in addresses.items()}


def test_each_replica_has_its_own_address_of_health_and_metrics() -> None:
    places = laid({"llm": 3, "token2wav": 2}, health(llm="0.0.0.0:8081", token2wav="127.0.0.1:0", frontend="[::1]:90"))
    assert {place.label: place.environ.get(f"COSYSERVE_{place.service.upper()}_HEALTH_LISTEN") for place in places} == {
        "llm.0": "0.0.0.0:8081",
        "llm.1": "0.0.0.0:8082",
        "llm.2": "0.0.0.0:8083",
        "token2wav.0": "127.0.0.1:0",
        "token2wav.1": "127.0.0.1:0",
        "frontend.0": "[::1]:90",
        "orchestrator.0": None,
    }
    # What is no address is the service's to refuse.
    assert laid({"llm": 2}, health(llm="8081"))[1].environ["COSYSERVE_LLM_HEALTH_LISTEN"] == "8081"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"environ": health(llm="[::]:8081", token2wav="[::]:8082")},
            r"token2wav\.0 would have port 8082, which llm",
        ),
        (
            {"environ": health(orchestrator="[::]:8082", llm="[::]:8081")},
            r"orchestrator\.0 would have port 8082",
        ),
        ({"environ": health(llm="[::]:65535")}, r"llm\.1 would have port 65536; allowed are 1 to 65535"),
        (
            {"environ": health(llm="[::]:8081"), "ports": {"frontend": [8082]}},
            r"8082, which HEALTH_LISTEN of llm\.1 has",
        ),
        ({"environ": health(llm="[::]:8081"), "listen": "127.0.0.1:8082"}, r"8082, which HEALTH_LISTEN of llm"),
    ],
)
def test_no_two_processes_serve_health_on_one_port(how: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        laid({"llm": 2}, **how)


def test_each_process_of_the_orchestrator_has_a_socket_that_the_gateway_calls(tmp_path: Path) -> None:
    several = {"COSYSERVE_ORCHESTRATOR_PROCESSES": "3"}
    *_, orchestrator, gateway = laid(environ=several, http="127.0.0.1:0", sockets=tmp_path)
    first = f"unix:{tmp_path}/orchestrator.0"
    assert orchestrator.environ["COSYSERVE_ORCHESTRATOR_LOCAL_LISTEN"] == orchestrator.probed == first
    assert gateway.environ["COSYSERVE_GATEWAY_ORCHESTRATOR"].split(",") == [
        local_socket(first, number) for number in range(3)
    ]
    *_, orchestrator, gateway = laid(http="127.0.0.1:0", sockets=tmp_path)
    assert gateway.environ["COSYSERVE_GATEWAY_ORCHESTRATOR"] == orchestrator.address
