"""`python -m tools.model.convert MODEL --target NAME`: the speech-token model in the form another
engine loads.

Targets: hf (Hugging Face directory, for TensorRT-LLM's LLM API and transformers), trtllm-1.x and
trtllm-0.20 (checkpoint for `trtllm-build`), vllm. MODEL is a published model directory, or a
Hugging Face directory made of one. Needs memory for one block of rows of a tensor (16 MiB),
whatever the size of the model; a run that was cut off goes on where it was.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cosyserve.commands.terminal.output import Parser

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from tools.model.checkpoints import hugging_face, tensorrt_llm, vllm
from tools.model.checkpoints.hugging_face_reader import as_conversion_of, open_checkpoint
from tools.model.checkpoints.llm_checkpoint import LlmCheckpoint, from_upstream
from tools.model.checkpoints.tensor_file import Precision, write
from tools.model.output.command import run
from tools.model.output.complete_directory import Assembly, Identity, publish
from tools.model.output.progress import Progress, in_units

FORM = "1"
"""Goes up when the same input gives other files."""


class Form(Protocol):
    """What each module of a target is."""

    def weights(self, checkpoint: LlmCheckpoint) -> hugging_face.Weights: ...

    def write_small_files(self, checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None: ...


TARGETS: dict[str, Form] = {"hf": hugging_face, "trtllm-1.x": tensorrt_llm, "trtllm-0.20": tensorrt_llm, "vllm": vllm}


def identity(checkpoint: LlmCheckpoint, target: str, precision: Precision) -> Identity:
    """What a conversion is made of."""
    return {"kind": f"llm-{target}", "source": checkpoint.identity, "precision": precision.value, "form": FORM}


def convert(
    source: Path, target: str, precision: Precision, output: Path, *, replace: bool = False, model: Path | None = None
) -> dict[str, object]:
    """Make `output`, unless it is there; returns what it is. model: the model directory that a
    Hugging Face directory without our manifest was made of, whose weights are compared. Raises
    ModelError."""
    checkpoint, form = open_checkpoint(source), TARGETS[target]
    if model is not None:
        try:
            checkpoint = as_conversion_of(checkpoint, from_upstream(ModelDirectory(model)))
        except ModelError as error:
            raise ModelError(f"{source} is no conversion of {model}: {error}") from error
    weights = form.weights(checkpoint)
    size = precision.size * sum(math.prod(tensor.shape) for tensors in weights.values() for tensor in tensors.values())

    def make(assembly: Assembly) -> None:
        form.write_small_files(checkpoint, assembly, precision)
        for name, tensors in weights.items():
            assembly.file(name, lambda path, tensors=tensors: write(path, tensors, precision, progress.add))  # type: ignore[misc]

    with Progress(f"{target} {precision}", size) as progress:
        manifest, is_new = publish(
            output,
            identity(checkpoint, target, precision),
            make,
            needed=size + (64 << 20),
            replace=replace,
            on_wait=lambda line: print(line, file=sys.stderr),
        )
    return {"directory": str(output), "made": is_new, "bytes": manifest.size, **manifest.identity}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="cosyserve model convert", description="Write the speech-token model for another engine.")
    parser.add_argument(
        "source",
        type=Path,
        metavar="MODEL",
        help="model directory with llm.pt, or a Hugging Face directory made of one",
    )
    parser.add_argument("--target", required=True, choices=sorted(TARGETS), help="engine that shall load it")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="directory to make")
    parser.add_argument(
        "--dtype",
        type=Precision,
        choices=list(Precision),
        default=Precision.BFLOAT16,
        help="type of the weights (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="model directory from which somebody else made the Hugging Face directory: compares the weights, so that "
        "the conversion can be served with it",
    )
    parser.add_argument("--force", action="store_true", help="replace a conversion of something else at --output")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    done = convert(
        options.source, options.target, options.dtype, options.output, replace=options.force, model=options.model
    )
    if options.json:
        print(json.dumps(done))
    else:
        size = in_units(int(str(done["bytes"])))
        print(
            f"{options.output}: {'made' if done['made'] else 'already there'}, {size}, {options.target} {options.dtype}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
