"""Token2WavService over the exported graphs, executed by ONNX Runtime on the CPU: real gRPC, real
model, samples as the torch path's.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.engines.engine_cache import Engine, EngineCache
from cosyserve.errors import SettingsError
from cosyserve.v1 import token2wav_pb2
from services.token2wav.decoders.backend import Backend
from services.token2wav.engines.artifacts import graph_file, graphs_key
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_backend
from tests.contract.token2wav.token2wav_service import Loopback, begin, said, serving, setup
from tests.stacks.calls import refusal
from tests.stacks.up_process import run_service
from tests.unit.token2wav.engines.engines import onnx_backend, settings
from tests.unit.token2wav.speaking import TINY, tokens, torch_backend, until
from tools.model.export import estimator_weights, export, flow_weights, model_hash
from tools.model.graphs.estimator_graph import EstimatorGraph
from tools.model.graphs.graph import Precision, write


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


async def decode(service: Loopback, count: int, **fields: Any) -> "np.ndarray[Any, np.dtype[np.float64]]":
    request = token2wav_pb2.DecodeRequest(setup=setup(**fields), speech_tokens=tokens(count))
    pieces = [response.audio.audio async for response in service.stub.Decode(request, timeout=60)]
    return np.frombuffer(b"".join(pieces), "<i2") / 32768


async def test_the_service_speaks_through_the_exported_graphs(cache: Path) -> None:
    async with serving(onnx_backend(cache)) as engines, serving(torch_backend()) as plain:
        for profile, prompt, count in ((1, 20, 64), (1, 0, 3), (1, 30, 101), (2, 20, 64), (3, 25, 40)):
            made, wanted = [
                await decode(service, count, prompt=prompt, seed=5, profile=profile) for service in (engines, plain)
            ]
            assert made.shape == wanted.shape == (960 * count,)
            assert wanted.std() > 0.05
            assert np.abs(made - wanted).max() < 2e-3, profile


def flow_of(backend: Backend) -> Any:
    return backend.decoders[Profile.CONTINUOUS].flow


@pytest.mark.parametrize("profile", [1, 2, 3])
async def test_hanging_up_stops_the_work_and_gives_the_slots_back(cache: Path, profile: int) -> None:
    backend = onnx_backend(cache)
    async with serving(backend) as service:
        call = service.stub.DecodeStream()
        await call.write(begin(prompt=20, profile=profile))
        await call.write(said(tokens(400)))
        await call.done_writing()
        await until(lambda: backend.euler_steps() >= 3, 60)
        call.cancel()
        await until(lambda: not service.batcher.stats().streams, 30)
        await until(lambda: flow_of(backend).slots.free == flow_of(backend).slots.count, 30)
        begun = backend.euler_steps()
        await asyncio.sleep(0.2)
        assert backend.euler_steps() == begun
        assert begun < 10 * 400 / 25
        assert (await decode(service, 5)).shape == (4800,)


async def test_the_published_estimator_serves_two_profiles_and_says_so(cache: Path, tmp_path: Path) -> None:
    for path in TINY.iterdir():
        (tmp_path / path.name).symlink_to(path)
    weights, config = flow_weights(TINY)
    file = tmp_path / "flow.decoder.estimator.fp32.onnx"
    write(EstimatorGraph(estimator_weights(weights), config, masked=False).model({}), file)
    export(tmp_path, EngineCache(cache), Precision.FP32, file)
    backend = load_backend("onnxruntime", settings(cache, model=tmp_path, engine_estimator="published"))
    assert "full attention only" in backend.identity.precision
    async with serving(backend) as service, serving(torch_backend()) as plain:
        await refusal(
            decode(service, 30), grpc.StatusCode.FAILED_PRECONDITION, "ask for PROFILE_OFFLINE or PROFILE_UPSTREAM"
        )
        for profile, exact in ((3, True), (2, False)):
            made, wanted = [await decode(each, 64, prompt=20, profile=profile) for each in (service, plain)]
            assert made.shape == wanted.shape
            # Full attention in streaming calls too, as TensorRT does upstream: another sound than
            # with masks.
            assert bool(np.abs(made - wanted).max() < 2e-3) is exact


def start(model: Path, engines: Path, **changed: str) -> "subprocess.CompletedProcess[str]":
    options = {"LISTEN": "127.0.0.1:0", "MODEL": str(model), "BACKEND": "onnxruntime", "ENGINES": str(engines)}
    return run_service("token2wav", **options | changed)


def test_a_start_without_its_graphs_says_which_command_makes_them(cache: Path, tmp_path: Path) -> None:
    export(TINY, EngineCache(cache), Precision.FP32)
    ended = start(TINY, cache, ENGINE_PRECISION="bf16")
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, "precision is bf16, it was built for fp32" in last) == (3, True)
    assert last.endswith(f"make it with: cosyserve model export {TINY} --precision bf16 --engines {cache}")
    export(TINY, EngineCache(cache), Precision.BF16)
    ended = start(TINY, cache, ENGINE_PRECISION="bf16")
    assert ended.returncode == 2
    assert "cannot run the estimator graph on cpu" in ended.stderr
    assert ended.stderr.strip().endswith(
        "choose another engine_precision: fp32 runs everywhere, bf16 and fp8 are for TensorRT"
    )
    for changed, words in (
        ({"engine_precision": "int4"}, "engine_precision 'int4' is not known; there are fp32, fp16, bf16, fp8"),
        ({"engine_estimator": "theirs"}, "engine_estimator 'theirs' is not known; there are own, published"),
        ({"engine_contexts": 0}, "engine_contexts is 0; 1 to 64 is allowed"),
    ):
        with pytest.raises(SettingsError, match=words):
            load_backend("onnxruntime", settings(tmp_path, **changed))


def test_a_damaged_graph_is_not_loaded(tmp_path: Path) -> None:
    file = export(TINY, EngineCache(tmp_path), Precision.FP32).file(graph_file("filter"))
    sound = file.read_bytes()
    content = bytearray(sound)
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    ended = start(TINY, tmp_path)
    assert (ended.returncode, "filter.onnx has other bytes than were built" in ended.stderr) == (3, True)
    assert export(TINY, EngineCache(tmp_path), Precision.FP32).file(graph_file("filter")).read_bytes() == sound
    assert isinstance(EngineCache(tmp_path).find(graphs_key(model_hash(TINY), "fp32")), Engine)
