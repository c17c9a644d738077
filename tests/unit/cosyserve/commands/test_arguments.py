"""What commands take as backends and replicas, and what becomes of it in the services'
variables.
"""

import argparse
import re
import socket
from collections.abc import Callable

import pytest

from cosyserve.commands.terminal.arguments import add_gpu_sharing, add_serving, serving
from cosyserve.commands.terminal.service_lists import backend, devices, ports, replicas
from cosyserve.errors import SettingsError
from cosyserve.host.starting.serving import strictness, wyoming_address
from cosyserve.host.supervision.layout import lay_out
from tests.stacks.up_process import DEMO


def test_one_name_is_for_both_engines_and_each_can_have_its_own() -> None:
    assert backend("torch") == "torch"
    assert backend("llm=vllm,token2wav=tensorrt") == {"llm": "vllm", "token2wav": "tensorrt"}
    assert replicas("token2wav=2, llm=1") == {"token2wav": 2, "llm": 1}


@pytest.mark.parametrize(
    ("read", "texts", "message"),
    [
        (backend, ["llm=", "llm=vllm,llm=torch", "=vllm"], "is not of the form llm=vllm,token2wav=tensorrt"),
        (backend, ["frontend=torch"], "names more than llm and token2wav"),
        (replicas, ["llm", "llm=two", "llm=1,llm=2", "llm="], "is not of the form token2wav=2,llm=1"),
        (
            devices,
            ["", "cuda:0", "=cuda:0", "llm=", "llm=cuda:0,", "llm=cuda:0,llm=cuda:1", "llm=cuda:0,,cuda:1"],
            "is not of the form token2wav=cuda:0,cuda:1,llm=cuda:0",
        ),
        (ports, ["llm=x"], "is not of the form frontend=50052,llm=50053,token2wav=50054"),
    ],
)
def test_other_forms_are_refused(read: Callable[[str], object], texts: list[str], message: str) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{re.escape(repr(text))} {message}"):
            read(text)


@pytest.mark.parametrize(
    ("given", "llm", "token2wav"),
    [
        (None, "vllm", None),
        ("torch", "torch", "torch"),
        ({"token2wav": "tensorrt"}, "vllm", "tensorrt"),
        ({"llm": "torch", "token2wav": "torch"}, "torch", "torch"),
    ],
)
def test_who_is_given_no_backend_has_what_the_environment_says(
    given: str | dict[str, str] | None, llm: str | None, token2wav: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYSERVE_LLM_BACKEND", "vllm")
    monkeypatch.delenv("COSYSERVE_TOKEN2WAV_BACKEND", raising=False)
    places = {place.service: place.environ for place in lay_out(DEMO, "127.0.0.1:0", {}, given, None, 1.0, {})}
    assert places["llm"].get("COSYSERVE_LLM_BACKEND") == llm
    assert places["token2wav"].get("COSYSERVE_TOKEN2WAV_BACKEND") == token2wav


def test_strict_is_for_both_engines() -> None:
    assert strictness(False) == {}
    assert strictness(True) == {
        "COSYSERVE_LLM_STRICT": "true",
        "COSYSERVE_TOKEN2WAV_STRICT": "true",
    }


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        ([], {}),
        (["--root-path", "/tts"], {"COSYSERVE_GATEWAY_ROOT_PATH": "/tts"}),
        (["--wyoming", "127.0.0.1:0"], {"COSYSERVE_GATEWAY_WYOMING_LISTEN": "127.0.0.1:0"}),
    ],
)
def test_options_of_the_gateway_reach_it(given: list[str], variables: dict[str, str]) -> None:
    parser = argparse.ArgumentParser()
    add_serving(parser)
    add_gpu_sharing(parser)
    environ = serving(parser.parse_args(given))["environ"]
    assert {name: value for name, value in environ.items() if "_GATEWAY_" in name} == variables


def test_an_address_for_wyoming_is_a_variable_of_the_gateway() -> None:
    assert wyoming_address(None, "off") == {}
    assert wyoming_address("127.0.0.1:0", "127.0.0.1:8080") == {"COSYSERVE_GATEWAY_WYOMING_LISTEN": "127.0.0.1:0"}


def test_wyoming_needs_the_gateway() -> None:
    with pytest.raises(SettingsError, match="which --http off leaves out"):
        wyoming_address("127.0.0.1:0", "off")


def test_an_address_for_wyoming_that_is_malformed_or_in_use_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'10200' is not an address.*--wyoming chooses another address"):
        wyoming_address("10200", "127.0.0.1:8080")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=rf"cannot listen on {address}.*--wyoming chooses another address"):
            wyoming_address(address, "127.0.0.1:8080")
