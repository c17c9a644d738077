"""Chooses and loads the engine: the candidates in order of preference, and the loader behind each
backend name.

Tensor libraries are imported only by the backend that needs them.
"""

from dataclasses import replace

from cosyserve.engines.benchmark_note import TOKEN2WAV, read_note
from cosyserve.engines.engine_cache import default_directory
from cosyserve.engines.fallback import LOAD_SECONDS, Candidate, LoadedEngine, ResumeFrom, first_working
from cosyserve.engines.gpu_facts import visible_gpus
from cosyserve.errors import SettingsError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.model_pair import decoding_directory
from cosyserve.generations.reading import generation_of
from cosyserve.generations.separate_decoder import decoder_of
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import BACKENDS, FAKE_FAULTS, Backend, EngineSettings
from services.token2wav.inputs.chunking import check_first_hop

TENSORRT, PAGED, READABLE, CPU = "tensorrt", "paged", "readable", "cpu"
_WITHOUT_FILES = ("torch", "fake")


def tensorrt_first(backend: str, settings: EngineSettings, auto_first: str = "") -> bool:
    """Whether `auto` tries TensorRT before torch: because a setting says so, or because a benchmark
    on this host found it to be faster. Blocks while it reads the benchmark's result.
    """
    if backend != "auto" or settings.device == "cpu":
        return False
    cache = settings.engines or default_directory()
    return (auto_first or read_note(cache, TOKEN2WAV, settings.weights, settings.engine_precision)) == TENSORRT


def candidates(
    backend: str, settings: EngineSettings, *, tensorrt: bool = False
) -> list[tuple[str, str, EngineSettings]]:
    """The candidates in order of preference: name, backend, and the settings that select exactly
    this candidate. tensorrt: the result of `tensorrt_first`.
    """
    if settings.gpu_engine not in ("auto", PAGED, READABLE):
        # the loader raises the error for an unknown gpu_engine
        return [("torch", "torch", settings)]
    gpu = "cuda" if settings.device == "auto" else settings.device
    if backend not in ("auto", "torch"):
        return [(backend, backend, replace(settings, device=gpu if backend == TENSORRT else _without_auto(settings)))]
    on_gpu = gpu.startswith("cuda")
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and settings.gpu_engine != PAGED)
    listed = [(TENSORRT, TENSORRT, replace(settings, device=gpu))] if tensorrt and on_gpu else []
    listed += [
        (engine, "torch", replace(settings, device=gpu, gpu_engine=engine))
        for engine in (PAGED, READABLE)
        if on_gpu and settings.gpu_engine in ("auto", engine)
    ]
    listed += [(CPU, "torch", replace(settings, device="cpu"))] if on_cpu else []
    # An empty list means an unknown device; the loader raises the error for it.
    return listed or [("torch", "torch", settings)]


def load_chosen(
    backend: str,
    settings: EngineSettings,
    *,
    strict: bool = False,
    below: ResumeFrom | None = None,
    load_seconds: float = LOAD_SECONDS,
    auto_first: str = "",
) -> LoadedEngine[Backend]:
    """Load the first candidate that the settings allow and that can serve here.

    below: where to resume the list after a candidate that loaded but failed its first sentence.
    load_seconds: time limit for loading each candidate. auto_first: `tensorrt` makes backend `auto`
    try it first. Blocks. Raises as `load_backend` does, and EngineUnavailable if the last candidate
    exceeds its time limit.
    """

    def candidate(name: str, backend_of_candidate: str, wanted: EngineSettings) -> Candidate[Backend]:
        return Candidate(
            name,
            lambda: load_backend(backend_of_candidate, wanted),
            needs_files=backend_of_candidate not in _WITHOUT_FILES,
            discard=lambda late: late.release(),
        )

    ordered = [
        candidate(*one) for one in candidates(backend, settings, tensorrt=tensorrt_first(backend, settings, auto_first))
    ]
    return first_working(
        "token2wav",
        ordered,
        strict=strict,
        setting="COSYSERVE_TOKEN2WAV_STRICT",
        choice=f"COSYSERVE_TOKEN2WAV_GPU_ENGINE={PAGED}" if ordered[-1].name == PAGED else "",
        below=below,
        load_seconds=load_seconds,
    )


def _without_auto(settings: EngineSettings) -> str:
    if settings.device != "auto":
        return settings.device
    return "cuda" if visible_gpus() else "cpu"


def load_backend(name: str, settings: EngineSettings) -> Backend:
    """Load the backend called `name`; blocks while it reads the weights.

    Raises SettingsError for an invalid combination of settings, ModelError for a model that cannot
    be used.
    """
    if settings.first_hop_tokens:
        _check_first_hop(settings, settings.first_hop_tokens)
    backend = _load(name, settings)
    first_hop = backend.first_hop_tokens if settings.first_hop_tokens is None else settings.first_hop_tokens
    identity = backend.identity
    if first_hop:
        # The prompt's cut decides the samples, so only a replica with the same cut may continue a
        # sentence.
        identity = replace(identity, precision=f"{identity.precision}, first hop of {first_hop} tokens")
    return replace(backend, identity=identity, first_hop_tokens=first_hop)


def _generation(settings: EngineSettings) -> Generation:
    """Of the model directory; CosyVoice2 where there is none, which the loaders of all engines but
    the fake refuse. Raises ModelError as `generation_of`.
    """
    if settings.model is None or not settings.model.is_dir():
        return COSYVOICE2
    return generation_of(ModelDirectory(settings.model))


def _load(name: str, settings: EngineSettings) -> Backend:
    if name not in BACKENDS:
        raise SettingsError(f"backend {name!r} is not known; there are {', '.join(BACKENDS)}")
    if name == "fake":
        from services.token2wav.decoders.fake import load_fake

        if settings.fake_fault and settings.fake_fault not in FAKE_FAULTS:
            raise SettingsError(f"fake_fault {settings.fake_fault!r} is not known; there are {', '.join(FAKE_FAULTS)}")
        if not 0 <= settings.fake_fault_share <= 1:
            raise SettingsError(f"fake_fault_share is {settings.fake_fault_share:g}; 0 to 1 is allowed")
        held_back = _generation(settings).hold_back_tokens
        return load_fake(settings.fake_token_seconds, settings.fake_fault, settings.fake_fault_share, held_back)
    if settings.model is None:
        raise SettingsError(f"backend {name} needs a model directory, and none is set")
    directory = decoding_directory(settings.model, settings.decoder_model)
    if name == "torch":
        from services.token2wav.torch_backend import load_torch

        return load_torch(directory, settings)
    if name == "onnxruntime":
        from services.token2wav.engines.backend import load_onnx

        return load_onnx(directory.path, settings)
    from services.token2wav.engines.tensorrt import load_tensorrt

    return load_tensorrt(directory.path, settings)


def _check_first_hop(settings: EngineSettings, tokens: int) -> None:
    if settings.model is not None and settings.decoder_model is not None:
        decoder = decoder_of(decoding_directory(settings.model, settings.decoder_model))
        if decoder is not None:
            raise SettingsError(
                f"first_hop_tokens is {tokens}; {decoder.title} decodes a prompt as one block, "
                "behind which the first hop has 25 tokens; leave it at 0"
            )
    check_first_hop(tokens, _generation(settings).hold_back_tokens)
