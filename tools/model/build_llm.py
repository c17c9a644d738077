"""`python -m tools.model.build llm CHECKPOINT` builds the TensorRT-LLM engine of the speech-token
model with `trtllm-build`.

CHECKPOINT is a directory written by `cosyserve model convert --target trtllm-1.x` (or trtllm-0.20).
The engine is stored in the engine cache. Its key consists of checkpoint, precision, limits, GPU,
driver, and the versions of TensorRT-LLM and TensorRT. Releases of TensorRT-LLM without an engine
builder need no engine: they load the Hugging Face form (`convert --target hf`). The arguments of
`trtllm-build` follow section 7.4 of the compatibility specification.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.engines.engine_cache import Engine, EngineCache, EngineKey
from cosyserve.engines.gpu_facts import library_versions, machine_gpus
from cosyserve.errors import ModelError, SettingsError
from services.llm.generation.request import MOST_ARRIVING_IDS, MOST_PROMPT_SPEECH
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, VOCABULARY_FILE
from tools.model.output.command import ENGINES, command, engine_cache, say
from tools.model.output.complete_directory import Manifest, check_room, damage, read_manifest

COMPONENT = "llm.engine"
PROGRAM = "trtllm-build"
ENGINE_FILES = ("config.json", "rank0.engine")
LONGEST_INPUT = 2 + 2 * MOST_ARRIVING_IDS + MOST_PROMPT_SPEECH
"""Positions of the longest input that the service accepts: the two special inputs (start of the
sequence, start of the speech), the prompt's text and the text, and the prompt's speech tokens.
"""
_NO_PROGRAM = (
    f"{PROGRAM} is not on the PATH: run this in the image of the Dockerfile's target llm, which brings TensorRT-LLM "
    "(docker build --target llm), or install tensorrt_llm 0.20 to 1.2; later releases have no engine builder and load "
    "the Hugging Face form as it is: cosyserve model convert MODEL --target hf"
)


@dataclass(frozen=True)
class Limits:
    """Limits of an engine. sentences: how many run at once. positions: of one sentence, its input
    and its generated speech together. tokens: positions of all sentences in one step.

    Raises ValueError naming the option of the command line.
    """

    sentences: int = 64
    positions: int = 8192
    tokens: int = 8192

    def __post_init__(self) -> None:
        for option, value, least, why, most in (
            ("--max-batch-size", self.sentences, 1, "", 2048),
            ("--max-seq-len", self.positions, LONGEST_INPUT + 1, "", 32768),
            ("--max-num-tokens", self.tokens, LONGEST_INPUT, " (the longest prompt and text)", 1 << 20),
        ):
            if not least <= value <= most:
                raise ValueError(f"{option} is {value}; {least}{why} to {most} is allowed")


def checkpoint_manifest(checkpoint: Path) -> Manifest:
    """The manifest of `checkpoint`, whose files are compared with it. Raises ModelError when the
    directory was not written by `cosyserve model convert`, has another target, or is damaged.
    """
    manifest = read_manifest(checkpoint)
    if manifest is None or not manifest.identity.get("kind", "").startswith("llm-trtllm-"):
        raise ModelError(
            f"{checkpoint}: no TensorRT-LLM checkpoint: make one with cosyserve model convert MODEL --target trtllm-1.x"
        )
    problem = damage(checkpoint, manifest, thorough=True)
    if problem is not None:
        raise ModelError(f"{problem}; convert the model again")
    return manifest


def builder_arguments(checkpoint: Path, output: Path, precision: str, limits: Limits) -> list[str]:
    """The command line of `trtllm-build`, program included; the same for 0.20 and 1.x."""
    arguments = {
        "checkpoint_dir": checkpoint, "output_dir": output, "max_batch_size": limits.sentences,
        "max_input_len": LONGEST_INPUT,
        "max_seq_len": limits.positions, "max_num_tokens": limits.tokens, "max_beam_width": 1, "kv_cache_type": "paged",
        "remove_input_padding": "enable", "use_paged_context_fmha": "enable" if precision != "float32" else "disable",
        "context_fmha": "enable" if precision != "float32" else "disable", "gemm_plugin": precision,
        "gpt_attention_plugin": precision,
        "logits_dtype": "float32", "workers": 1,
    }  # fmt: skip
    return [PROGRAM, *(part for name, value in arguments.items() for part in (f"--{name}", str(value)))]


def engine_key(manifest: Manifest, limits: Limits, machine: Mapping[str, str]) -> EngineKey:
    """The key of an engine in the cache. machine: gpu, compute_capability, driver, and the versions
    of tensorrt_llm and tensorrt, as from `machine_facts`.
    """
    facts = {
        "model": manifest.identity["source"],
        "checkpoint": manifest.identity["kind"],
        "precision": manifest.identity["precision"],
        "form": manifest.identity["form"],
    }
    profile = ", ".join(f"{name} {value}" for name, value in {**asdict(limits), "input": LONGEST_INPUT}.items())
    return EngineKey(COMPONENT, facts | {"profile": profile} | dict(machine))


def machine_facts(number: int) -> dict[str, str]:
    """The facts of this machine for which an engine is valid. number: index of the GPU in the order
    of nvidia-smi. Raises SettingsError when no GPU has this index.
    """
    gpus = machine_gpus()
    if not 0 <= number < len(gpus):
        raise SettingsError(
            f"GPU {number} is not there: nvidia-smi reports {len(gpus)}; an engine is built on the GPU that runs it"
        )
    return gpus[number] | library_versions("tensorrt_llm", "tensorrt")


def build(checkpoint: Path, cache: EngineCache, limits: Limits, number: int) -> Engine:
    """The engine of this checkpoint for GPU `number`, from the cache or built now. Blocks while it
    builds.

    Raises ModelError for an invalid checkpoint or a failed build, SettingsError without the GPU or
    without `trtllm-build`, and OSError.
    """
    manifest = checkpoint_manifest(checkpoint)
    program = shutil.which(PROGRAM)
    key = engine_key(manifest, limits, machine_facts(number))
    # `trtllm-build` uses the first visible GPU. The key has the GPU from nvidia-smi, which numbers
    # GPUs by PCI bus, so CUDA must number them in the same way.
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}

    def make(directory: Path) -> None:
        if program is None:
            raise SettingsError(_NO_PROGRAM)
        check_room(directory, manifest.size * 3 // 2)
        command = builder_arguments(checkpoint, directory, manifest.identity["precision"], limits)
        say(shlex.join(command))
        status = subprocess.run([program, *command[1:]], check=False, stdout=sys.stderr, env=environment).returncode
        if status != 0:
            raise ModelError(f"{PROGRAM} ended with status {status}; its own lines above say why")
        missing = [name for name in ENGINE_FILES if not (directory / name).is_file()]
        if missing:
            raise ModelError(f"{PROGRAM} ended well without writing {' and '.join(missing)}")
        for name in (HEAD_BIAS_FILE, VOCABULARY_FILE):
            shutil.copyfile(checkpoint / name, directory / Path(name).name)

    return cache.obtain(key, make)


@command(
    "build llm",
    "Build the TensorRT-LLM engine for this GPU.",
    {
        "checkpoint": {
            "type": Path, "metavar": "CHECKPOINT", "help": "what convert --target trtllm-1.x or trtllm-0.20 made"
        },
        **ENGINES,
        "--max-batch-size": {
            "type": int, "default": Limits.sentences, "metavar": "N", "help": "sentences at once (default: %(default)s)"
        },
        "--max-seq-len": {
            "type": int, "default": Limits.positions, "metavar": "N",
            "help": "positions of a sentence, prompt and speech together (default: %(default)s)"
        },
        "--max-num-tokens": {
            "type": int, "default": Limits.tokens, "metavar": "N",
            "help": "positions of all sentences in one step (default: %(default)s)"
        },
        "--gpu": {
            "type": int, "default": 0, "metavar": "N",
            "help": "number of the GPU, as nvidia-smi has it (default: %(default)s)"
        },
        "--dry-run": {"action": "store_true", "help": "print the command and build nothing"},
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    try:
        limits = Limits(options.max_batch_size, options.max_seq_len, options.max_num_tokens)
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    cache = engine_cache(options)
    if options.dry_run:
        precision = checkpoint_manifest(options.checkpoint).identity["precision"]
        print(shlex.join(builder_arguments(options.checkpoint, cache.root / "ENGINE", precision, limits)))
        return 0
    if shutil.which(PROGRAM) is None:
        raise SettingsError(_NO_PROGRAM)
    engine = build(options.checkpoint, cache, limits, options.gpu)
    print(f"{engine.directory}  {engine.bytes} bytes")
    return 0
