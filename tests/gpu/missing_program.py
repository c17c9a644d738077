"""`python -m tests.gpu.missing_program`: a step of one launch in which one program has no place.
Prints how long it lasted and whether its end counts as the loss of the device.
"""

import dataclasses
import sys
import time

import torch

from bench.generations.random_weights import llm_tensors
from bench.gpu import kernels
from bench.real_size import PUBLISHED_LLM
from cosyserve.engines.device_loss import is_device_loss
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import Memory
from services.llm.gpu.one_launch import OneLaunchStep
from services.llm.gpu.packing import pack

POSITIONS = 2048


def main() -> None:
    kernels.keep()
    config, device = dataclasses.replace(PUBLISHED_LLM, layers=2, text_vocabulary=1000), torch.device("cuda")
    model = pack(SpeechTokenModel.build(config, llm_tensors(config, device), device), torch.bfloat16, POSITIONS)
    step = OneLaunchStep(model, Memory.reserve(model, pages=4, slots=1, positions=POSITIONS))
    step.launch()
    torch.cuda.synchronize()
    print("whole step: done", flush=True)
    step._shape = dataclasses.replace(step._shape, grid=(step.programs - 1, 1, 1))
    began = time.monotonic()
    try:
        step.score()
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"after {time.monotonic() - began:.0f} s: {str(error).splitlines()[0]}; lost: {is_device_loss(error)}")
        return
    sys.exit("it ended")


if __name__ == "__main__":
    main()
