"""`python -m tools.model.convert MODEL --target NAME`: the speech-token model in the form another
engine loads.

Targets: hf (Hugging Face directory, for TensorRT-LLM's LLM API and transformers), trtllm-1.x and
trtllm-0.20 (checkpoint for `trtllm-build`), vllm. MODEL is a published model directory, or a
Hugging Face directory made of one. Needs memory for one block of rows of a tensor (16 MiB),
whatever the size of the model; a run that was cut off is resumed.
"""

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from tools.model.checkpoints.forms import TARGETS
from tools.model.checkpoints.hugging_face_reader import as_conversion_of, open_checkpoint
from tools.model.checkpoints.llm_checkpoint import from_upstream
from tools.model.checkpoints.tensor_file import Precision, write
from tools.model.output.command import JSON, command, say
from tools.model.output.complete_directory import Assembly, publish
from tools.model.output.progress import Progress, in_units

FORM = "1"
"""Goes up when the same input gives other files."""


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
    size = precision.dtype.itemsize * sum(
        math.prod(tensor.shape) for tensors in weights.values() for tensor in tensors.values()
    )

    def make(assembly: Assembly) -> None:
        form.write_small_files(checkpoint, assembly, precision)
        for name, tensors in weights.items():
            assembly.file(name, partial(write, tensors=tensors, precision=precision, on_bytes=progress.add))

    kind, made_of = f"llm-{target}", checkpoint.identity
    with Progress(f"{target} {precision}", size) as progress:
        manifest, is_new = publish(
            output,
            {"kind": kind, "source": made_of, "precision": precision.value, "form": FORM},
            make,
            needed=size + (64 << 20),
            replace=replace,
            on_wait=say,
        )
    return {"directory": str(output), "made": is_new, "bytes": manifest.size, **manifest.identity}


@command(
    "convert",
    "Write the speech-token model for another engine.",
    {
        "source": {
            "type": Path, "metavar": "MODEL",
            "help": "model directory with llm.pt, or a Hugging Face directory made of one"
        },
        "--target": {"required": True, "choices": sorted(TARGETS), "help": "engine that shall load it"},
        "--output": {"type": Path, "required": True, "metavar": "DIR", "help": "directory to make"},
        "--dtype": {
            "type": Precision, "choices": list(Precision), "default": Precision.BFLOAT16,
            "help": "type of the weights (default: %(default)s)"
        },
        "--model": {
            "type": Path, "metavar": "DIR",
            "help": "model directory of which its publisher made the Hugging Face directory: compares the weights, "
            "so that the conversion can be served with it"
        },
        "--force": {"action": "store_true", "help": "replace a conversion of something else at --output"},
        **JSON,
    },
)  # fmt: skip
def main(options: argparse.Namespace) -> int:
    done = convert(
        options.source, options.target, options.dtype, options.output, replace=options.force, model=options.model
    )
    if options.json:
        print(json.dumps(done))
    else:
        state, size = "made" if done["made"] else "already there", in_units(int(str(done["bytes"])))
        print(f"{options.output}: {state}, {size}, {options.target} {options.dtype}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
