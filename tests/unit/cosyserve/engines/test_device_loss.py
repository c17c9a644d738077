"""Which errors mean that the GPU is lost."""

import pytest
import torch

from cosyserve.engines.device_loss import is_device_loss, loss_reason


class AcceleratorError(RuntimeError):
    """As torch's, whose code cannot be set from Python."""

    error_code = 700


class OutOfResources(Exception):
    """As Triton's."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        RuntimeError("CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server"),
        RuntimeError("CUDA error: unknown error"),
        AcceleratorError("whatever it says"),
    ],
)
def test_errors_after_which_no_call_of_cuda_succeeds(error: Exception) -> None:
    assert is_device_loss(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("planted"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("CUDA error: operation not permitted when stream is capturing"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        OutOfResources("out of resource: shared memory, Required: 300000, Hardware limit: 232448"),
        ValueError("the text says: CUDA error: an illegal memory access was encountered"),
        KeyError("CUDA"),
    ],
)
def test_errors_that_a_process_survives(error: Exception) -> None:
    assert not is_device_loss(error)


def test_an_error_that_was_raised_from_one() -> None:
    error = ValueError("a pass failed")
    error.__cause__ = RuntimeError("CUDA error: misaligned address")
    assert is_device_loss(error)


def test_the_reason_quotes_nothing_of_the_error() -> None:
    reason = loss_reason(RuntimeError("CUDA error: unknown error in 'the text of a caller'"))
    assert reason == "the GPU is lost to this process (RuntimeError); it has to be started again"
