"""How the services are set on a GPU that they have to themselves, by the memory that is free: one
place for all measurements.
"""

from collections.abc import Mapping

ENGINES: Mapping[str, Mapping[str, str]] = {
    "fast": {
        "COSYSERVE_LLM_GPU_ENGINE": "fused",
        "COSYSERVE_TOKEN2WAV_GPU_ENGINE": "paged",
        "COSYSERVE_TOKEN2WAV_GPU_VOCODER": "windowed",
    },
    "readable": {"COSYSERVE_LLM_GPU_ENGINE": "readable", "COSYSERVE_TOKEN2WAV_GPU_ENGINE": "readable"},
}
"""fast: graphs of our own kernels. readable: PyTorch, as it runs on a CPU."""
SHARE_OF_STATE, BESIDE_BYTES = 0.65, 20_000_000_000
"""What the state of streams may take of the free memory, and what weights, graphs, scratch and the
speech-token model need in addition.
"""
LEAST_STATE_BYTES = 1 << 30


def state_bytes(free: int) -> int:
    """Memory for pages out of `free` bytes. Raises ValueError where there is too
    little.
    """
    count = min(int(SHARE_OF_STATE * free), free - BESIDE_BYTES)
    if count < LEAST_STATE_BYTES:
        raise ValueError(
            f"{free} bytes of GPU memory are free; the parts with services need {BESIDE_BYTES + LEAST_STATE_BYTES}"
        )
    return count


def settings(engines: str, free: int) -> dict[str, str]:
    """Environment of all services. engines: "fast" or "readable". free: bytes of GPU memory."""
    return {
        **ENGINES[engines],
        "COSYSERVE_TOKEN2WAV_STATE_BYTES": str(state_bytes(free)),
        # Streams that outgrow it are computed again from their first block: no request is refused
        # for a sentence that may be long.
        "COSYSERVE_TOKEN2WAV_RESERVE_TOKENS": "25",
        # More than any sentence here comes to; a prompt of 87 tokens is part of it.
        "COSYSERVE_LLM_MAX_POSITIONS": "1024",
        # Random weights cannot speak.
        "COSYSERVE_ORCHESTRATOR_GUARDS": "false",
    }
