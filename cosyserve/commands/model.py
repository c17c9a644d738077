"""`cosyserve model ...`: download a model directory, inspect it, and convert it for other
engines.
"""

import argparse
import os
import sys

from cosyserve.commands.terminal.server_package import ServerMissing, is_there

HELP = "fetch, inspect, convert and build models"
_STEPS = {
    "download": "fetch a published model directory",
    "inspect": "say what a directory holds, and what serving it needs",
    "convert": "write the speech-token model for TensorRT-LLM, vLLM or transformers",
    "export": "write the flow and the vocoder as ONNX",
    "build": "build engines for this machine's GPU",
    "verify": "compare exported graphs and engines with the reference path",
    "prune": "remove engines that are no longer used",
}
_NEEDS = {
    "download": ("huggingface_hub", "httpx2"),
    "inspect": ("torch", "safetensors"),
    "convert": ("torch", "tokenizers", "safetensors"),
    "export": ("torch", "onnx", "ml_dtypes"),
    "verify": ("torch",),
}
"""Libraries without which a step cannot begin."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, description in _STEPS.items():
        # No character begins an option here: all that follows belongs to the step, including
        # --help.
        step = steps.add_parser(name, help=description, add_help=False, prefix_chars="\0")
        step.add_argument("rest", nargs=argparse.REMAINDER)


async def run(arguments: argparse.Namespace) -> int:
    module = f"tools.model.{arguments.step}"
    arguments.json = "--json" in arguments.rest
    if not is_there(module):
        raise ServerMissing(f"model {arguments.step} is not part of this installation: run it in a checkout")
    missing = [library for library in _NEEDS.get(arguments.step, ()) if not is_there(library)]
    if missing:
        needed = f"model {arguments.step} needs {' and '.join(missing)}"
        raise ServerMissing(f"{needed}: pip install 'cosyserve-server[cpu,engines]'")
    sys.stdout.flush()
    sys.stderr.flush()
    # The step replaces this process: Ctrl-C, the terminal and the exit status belong to it.
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments.rest])  # noqa: S606 - no shell is wanted
