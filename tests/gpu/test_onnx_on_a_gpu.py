"""`cosyserve model export` and `verify` on the machine as it is, and ONNX Runtime on its GPU where
the wheel has that half.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_backend
from tests.gpu.compiling import environment
from tests.stacks.up_process import run_cosyserve
from tests.unit.token2wav.speaking import TINY, golden

pytest.importorskip("onnx", reason="graphs are written with onnx: pip install 'cosyserve-server[engines]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime, or onnxruntime-gpu")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CUDA = "CUDAExecutionProvider"
on_cuda = pytest.mark.skipif(
    CUDA not in onnxruntime.get_available_providers(),
    reason=f"onnxruntime {onnxruntime.__version__} has no {CUDA}: pip install onnxruntime-gpu in its place",
)
CLOSE = 1e-3
"""Of a mel, absolute: the CPU's bound is 5e-5, and other kernels round differently."""


def model(step: str, engines: Path, *options: str) -> str:
    options = ("--engines", str(engines), "--precision", "fp32", *options)
    done = run_cosyserve("model", step, str(TINY), *options, seconds=200, **environment())
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported graphs."""
    directory = tmp_path_factory.mktemp("engines")
    report = model("export", directory)
    for name in ("encoder", "estimator", "pitch", "filter"):
        assert f"{name}.onnx" in report
    return directory


def test_exported_graphs_are_the_torch_path(engines: Path) -> None:
    model("verify", engines)


@on_cuda
def test_they_are_on_the_gpu_too(engines: Path) -> None:
    model("verify", engines, "--runtime", "cuda")


@on_cuda
def test_the_service_s_engine_makes_the_recorded_mel_on_the_gpu(engines: Path) -> None:
    backend = load_backend("onnxruntime", EngineSettings(model=TINY, device="cuda", engines=engines, widest_step=4))
    assert backend.identity.device.startswith(torch.cuda.get_device_name(0))
    flow = backend.decoders[Profile.CONTINUOUS].flow
    with np.load(TINY / "flow_mel.npz") as recorded:
        wanted = recorded["mel_streaming_finalize"][0]
    prompt, mel, speaker, tokens = (
        torch.from_numpy(golden()[name][0]) for name in ("prompt_token", "prompt_feat", "spk_embedding", "token")
    )
    voice = VoicePrompt(prompt.long(), mel, speaker)
    made = flow.prefix(voice, tokens.long(), streaming=True, final=True).cpu().numpy()
    print(f"largest difference of the mel: {np.abs(made - wanted).max():.1e}")
    assert np.abs(made - wanted).max() < CLOSE
