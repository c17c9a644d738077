"""Triton is on the developer's machine for the tests of its kernels; what serves on a CPU never
loads it.
"""

import subprocess
import sys
from pathlib import Path

SPEAK = """
import asyncio, sys
from pathlib import Path
import services.frontend.__main__, services.llm.__main__, services.orchestrator.__main__, services.token2wav.__main__
from services.llm.settings import LlmSettings
from services.llm.backends.torch_backend import TorchBackend
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.stream import warm_up

async def speak(model):
    decoders = load_backend("torch", EngineSettings(model=model)).decoders
    batcher = Batcher(decoders, Limits(max_streams=1, state_bytes=1 << 30))
    await warm_up(batcher)
    batcher.close()
    llm = TorchBackend.load(LlmSettings(listen="127.0.0.1:0", model=model, device="cpu"))
    await llm.warm_up()
    await llm.close()

asyncio.run(speak(Path(sys.argv[1])))
print(sorted(name for name in sys.modules if name.partition(".")[0] == "triton"))
"""


def test_services_speak_without_loading_it() -> None:
    model = Path(__file__).parents[2] / "golden" / "tiny"
    spoken = subprocess.run(
        [sys.executable, "-c", SPEAK, str(model)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (spoken.returncode, spoken.stdout.strip()) == (0, "[]"), spoken.stderr
