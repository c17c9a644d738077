"""No kernel of a CPU is compiled twice, whatever the lengths of the sentences are."""

import os
import subprocess
import sys

import pytest
import torch

from services.token2wav.vocoder.compiled_kernels import CAPACITY, KERNELS, keep_compiled_kernels
from tests.stacks.up_process import ROOT

AGAIN = "once more"
# Two whole windows and a last one, of as many lengths as have more kernels than oneDNN keeps by
# default; a token has two frames.
SPEAK = f"""
import torch
from services.token2wav.inputs.request import Profile
from tests.unit.token2wav.speaking import torch_backend

vocoder = torch_backend().decoders[Profile.CONTINUOUS]._vocoder
for times in range(2):
    for frames in range(150, 184, 2):
        state = vocoder.start(0, 0, 50, 50)
        vocoder.step([state], [torch.full((80, frames), -5.0)], [True])
        assert state.rendered == frames
    print("{AGAIN}", flush=True)
"""


ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped


@pytest.mark.skipif(not ONEDNN, reason="this build of torch has no oneDNN")
def test_the_second_time_the_same_lengths_need_no_new_kernel() -> None:
    environ = {name: value for name, value in os.environ.items() if name != CAPACITY}
    environ |= {"PYTHONPATH": str(ROOT), "ONEDNN_VERBOSE": "profile_create"}
    ended = subprocess.run(
        [sys.executable, "-c", SPEAK], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=True
    )
    first, second = (part.count("create:cache_miss") for part in ended.stdout.split(AGAIN)[:2])
    # With fewer the test would show nothing.
    assert 1024 < first < KERNELS
    assert second == 0


def test_what_the_operator_has_set_stays() -> None:
    chosen = {CAPACITY: "99"}
    keep_compiled_kernels(chosen)
    assert chosen == {CAPACITY: "99"}
    unset = dict[str, str]()
    keep_compiled_kernels(unset)
    assert unset == {CAPACITY: str(KERNELS)}
