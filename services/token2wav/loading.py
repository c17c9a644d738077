"""Which engines token2wav would take, best first. Known without a tensor library."""

from dataclasses import replace

from cosyserve.engines.benchmark_note import NotedService, read_note
from cosyserve.engines.engine_cache import default_directory
from cosyserve.engines.fallback import LOAD_SECONDS, Below, Footing, Rung, descend
from cosyserve.engines.gpu_facts import TENSORRT as TENSORRT_DISTRIBUTIONS
from cosyserve.engines.gpu_facts import visible_gpus
from services.token2wav.decoders.backend import Backend, EngineSettings, load_backend

TENSORRT, PAGED, READABLE, CPU = "tensorrt", "paged", "readable", "cpu"
NOTED = NotedService("token2wav", (TENSORRT,), ("flow.pt", "hift.pt"), ("torch", "triton", *TENSORRT_DISTRIBUTIONS))
"""What a note of `cosyserve start --benchmark` about this service depends on."""
_WITHOUT_FILES = ("torch", "fake")


def tensorrt_first(backend: str, settings: EngineSettings, auto_first: str = "") -> bool:
    """Whether `auto` tries TensorRT before our own engines: a setting names it, or it was measured
    to be faster on this host. Blocks while a note is read."""
    if backend != "auto" or settings.device == "cpu":
        return False
    cache = settings.engines or default_directory()
    return (auto_first or read_note(cache, NOTED, settings.model, settings.engine_precision)) == TENSORRT


def rungs(backend: str, settings: EngineSettings, *, tensorrt: bool = False) -> list[tuple[str, str, EngineSettings]]:
    """Name of each rung, and the backend and settings that ask for it alone. tensorrt: as
    `tensorrt_first` says.
    """
    if settings.gpu_engine not in ("auto", PAGED, READABLE):
        return [("torch", "torch", settings)]  # the loader says what is wrong with it
    gpu = "cuda" if settings.device == "auto" else settings.device
    if backend not in ("auto", "torch"):
        return [(backend, backend, replace(settings, device=gpu if backend == TENSORRT else _without_auto(settings)))]
    on_gpu, on_cpu = gpu.startswith("cuda"), settings.device in ("auto", "cpu")
    found = [(TENSORRT, TENSORRT, replace(settings, device=gpu))] if tensorrt and on_gpu else []
    found += [
        (engine, "torch", replace(settings, device=gpu, gpu_engine=engine))
        for engine in (PAGED, READABLE)
        if on_gpu and settings.gpu_engine in ("auto", engine)
    ]
    found += [(CPU, "torch", replace(settings, device="cpu"))] if on_cpu else []
    # What is left has a device that is not known, and the loader says so.
    return found or [("torch", "torch", settings)]


def load_chosen(
    backend: str,
    settings: EngineSettings,
    *,
    strict: bool = False,
    below: Below | None = None,
    load_seconds: float = LOAD_SECONDS,
    auto_first: str = "",
) -> Footing[Backend]:
    """The first engine that the settings allow and that serves here; behind `below`, where one did
    not speak. load_seconds: time limit for loading each. auto_first: `tensorrt`, and backend `auto`
    tries it first. Blocks. Raises as `load_backend`, and Unserved where the last one did not load
    in its time."""

    def rung(name: str, backend_of_rung: str, wanted: EngineSettings) -> Rung[Backend]:
        return Rung(
            name,
            lambda: load_backend(backend_of_rung, wanted),
            needs_files=backend_of_rung not in _WITHOUT_FILES,
            discard=lambda late: late.release(),
        )

    ladder = [rung(*one) for one in rungs(backend, settings, tensorrt=tensorrt_first(backend, settings, auto_first))]
    return descend(
        "token2wav", ladder, strict=strict, setting="COSYSERVE_TOKEN2WAV_STRICT", below=below, load_seconds=load_seconds
    )


def _without_auto(settings: EngineSettings) -> str:
    if settings.device != "auto":
        return settings.device
    return "cuda" if visible_gpus() else "cpu"
