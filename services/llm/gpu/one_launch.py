"""The decode step of one row as one launch in CUDA C++ (`kernels/one_launch`) and the sampler
behind it, in the place of a `DecodeStep` of one row. For a GPU that no other process computes on.

Its programs stay on the device and wait for each other. That cannot hang where all are there at
once: the launch is cooperative, so the driver refuses it where they have no room, and nothing else
that waits may run beside it (`require_own_gpu`). A wait that does not end all the same stops the
step with an error after ten seconds, as a lost device does.
"""

import ctypes
from importlib.resources import files

import torch

from cosyserve.engines.cuda_kernels import Driver, DriverError, LaunchShape, Module, compile_kernels
from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.engines.one_launch import lacking
from services.llm.generation.config import LlmConfig
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.layout import PAGE
from services.llm.gpu.own_gpu import require_own_gpu
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.weight_order import ROWS, WARPS, OrderedWeights

SOURCES = ("shapes", "ring", "exchange", "arithmetic", "copies", "products", "attention", "step")
"""Files of the source, in order."""
STAGES, STAGE = 12, 16384
"""Number of stages of the ring of weights, and bytes of one: most of what a multiprocessor has."""
THREADS = 32 * (WARPS + 1)
PUBLISHED = (896, 4864, 14, 2, 64)
"""Width of the residual stream, of the gated product, heads, key heads, numbers of a head."""
MOST_LAYERS = 31
"""The number of the layer has five bits of a tag."""
MOST_PARTS, PAGES_OF_A_PART = 4, 32
MOST_POSITIONS = MOST_PARTS * PAGES_OF_A_PART * PAGE
"""Longest sequence: the programs that share the keys of a key head, times the pages of each."""
INSTEAD = "set COSYSERVE_LLM_GPU_DECODE=launches"


class _Arguments(ctypes.Structure):
    """`Arguments` of the kernel."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "weights", "plans", "bias", "head_bias", "cosines", "sines", "table", "cache",
        )),
        ("layer_bytes", ctypes.c_longlong),
        *((name, ctypes.c_void_p) for name in ("pages", "state", "rows", "exchange", "epoch", "logits")),
        ("most_pages", ctypes.c_int),
        ("epsilon", ctypes.c_float),
    )  # fmt: skip


class OneLaunchStep:
    """The step of one row: `rows`, `decisions`, `logits` and `launch` as of a `DecodeStep`.

    Takes as much memory again as the weights of a step. Raises Unsuitable where the model, the
    limits, the GPU or the installation do not allow it. Blocks for seconds where the kernel is not
    in the cache.
    """

    batch = 1

    def __init__(self, model: PackedModel, memory: Memory) -> None:
        config, device = model.config, model.device
        if device.type != "cuda" or model.dtype != torch.bfloat16:
            raise Unsuitable(f"one launch needs bfloat16 on a CUDA device; {INSTEAD}")
        properties = torch.cuda.get_device_properties(device)
        self.programs = properties.multi_processor_count
        check(config, memory.pages.shape[1] * PAGE, (properties.major, properties.minor), self.programs)
        driver = Driver()
        require_own_gpu(driver, torch.cuda.current_device() if device.index is None else device.index)
        self._sampler = DecodeStep(model, memory, 1)
        self.rows, self.decisions, self.logits = self._sampler.rows, self._sampler.decisions, self._sampler.logits
        self._weights = OrderedWeights.of(model, self.programs)
        tiles = self._weights.most_gated
        code = compile_kernels(source(), (properties.major, properties.minor), definitions(config, tiles))
        try:
            self._kernel = Module(code, driver).kernel("one_launch")
        except DriverError as error:
            raise Unsuitable(f"the driver does not load one launch ({error}); {INSTEAD}") from error
        self._shape = LaunchShape(
            grid=(self.programs, 1, 1), block=THREADS, shared=STAGES * STAGE + shared_bytes(tiles), cooperative=True
        )
        self._exchange = torch.zeros(exchange_words(config), dtype=torch.int64, device=device)
        self._epoch = torch.zeros(1, dtype=torch.int32, device=device)
        self._kept = (model, memory)
        pages = memory.cache[0]
        self._arguments = _Arguments(
            weights=self._weights.weights.data_ptr(), plans=self._weights.plans.data_ptr(),
            bias=self._weights.bias.data_ptr(), head_bias=model.head_bias.data_ptr(),
            cosines=model.cosines.data_ptr(), sines=model.sines.data_ptr(), table=model.table.data_ptr(),
            cache=memory.cache.data_ptr(), layer_bytes=pages.numel() * pages.element_size(),
            pages=memory.pages.data_ptr(), state=memory.state.data_ptr(), rows=self.rows.data_ptr(),
            exchange=self._exchange.data_ptr(), epoch=self._epoch.data_ptr(), logits=self.logits.data_ptr(),
            most_pages=memory.pages.shape[1], epsilon=config.rms_norm_eps,
        )  # fmt: skip
        self._require_room()
        torch.cuda.synchronize(device)  # the first launch may be on another stream

    def launch(self) -> None:
        """Enqueue the step on the current stream; neither allocates nor waits."""
        self.score()
        self._sampler.decide()

    def score(self) -> None:
        """Enqueue all of the step but the sampler."""
        self._kernel(self._shape, torch.cuda.current_stream().cuda_stream, self._arguments)

    def _require_room(self) -> None:
        """Raises Unsuitable where not all programs are on the device at once."""
        try:
            room = self._kernel.at_once(self._shape)
        except DriverError as error:
            raise Unsuitable(f"one launch does not fit this GPU ({error}); {INSTEAD}") from error
        if room < self.programs:
            raise Unsuitable(
                f"one launch needs {self.programs} programs on the GPU at once, it has room for {room}; {INSTEAD}"
            )


def source() -> str:
    """The CUDA C++ of the step."""
    folder = files("services.llm.gpu.kernels.one_launch")
    return "\n".join(folder.joinpath(f"{name}.cu").read_text(encoding="utf-8") for name in SOURCES)


def definitions(config: LlmConfig, most_gated: int) -> list[str]:
    """Options of the compiler. most_gated: tiles of gate and up of one program."""
    sizes = {
        "LAYERS": config.layers, "HIDDEN": config.hidden_size, "MLP": config.intermediate_size, "HEADS": config.heads,
        "KEY_HEADS": config.kv_heads, "STAGES": STAGES, "MOST_TILES": most_gated, "SHARED": shared_bytes(most_gated),
    }  # fmt: skip
    return [f"-D{name}={value}" for name, value in sizes.items()]


def shared_bytes(most_gated: int) -> int:
    """Bytes of shared memory behind the ring, at least those of `Shared` of the kernel (which the
    compiler checks): sums of the warps twice, what threads know of their rows, and the rest.
    """
    return 2 * most_gated * 16 * WARPS * 4 + most_gated * 16 * 4 + 2048


def exchange_words(config: LlmConfig) -> int:
    """Words of 8 bytes that programs exchange: the residual stream rounded, twice; queries, keys
    and values; the gated product; the residual stream; the parts of the attention.
    """
    heads = (config.heads + 2 * config.kv_heads) * config.head_size
    return (2 * config.hidden_size + heads + config.intermediate_size) // 2 + (1 + MOST_PARTS) * config.hidden_size


def check(config: LlmConfig, positions: int, capability: tuple[int, int], multiprocessors: int) -> None:
    """Raises Unsuitable naming what the step of one launch does not support. positions: of the
    longest sequence.
    """
    sizes = (config.hidden_size, config.intermediate_size, config.heads, config.kv_heads, config.head_size)
    least, gpu = config.hidden_size // ROWS, lacking(capability)
    obstacles = {
        gpu or "": gpu is not None,
        f"layers of the published sizes, {_sizes(PUBLISHED)}, the model has {_sizes(sizes)}": sizes != PUBLISHED,
        f"at most {MOST_LAYERS} layers, the model has {config.layers}": config.layers > MOST_LAYERS,
        f"at most {MOST_POSITIONS} positions a sequence, COSYSERVE_LLM_MAX_POSITIONS has pages for {positions}": (
            positions > MOST_POSITIONS
        ),
        f"at least {least} multiprocessors, this GPU has {multiprocessors}": multiprocessors < least,
    }
    for obstacle, present in obstacles.items():
        if present:
            raise Unsuitable(f"one launch needs {obstacle}; {INSTEAD}")


def _sizes(sizes: tuple[int, ...]) -> str:
    return "{} and {} numbers wide with {} heads, {} of keys, of {}".format(*sizes)
