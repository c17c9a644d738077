"""Two configurations that round differently have different identities; two that round alike have
the same.
"""

import pytest
import torch

from cosyserve.engines.compatibility import Identity
from services.llm.backends.torch_backend import TorchBackend, fused_precision_text
from tests.unit.llm.tiny_llm import settings


def identity(**changes: object) -> Identity:
    loaded = TorchBackend.load(settings(**changes))
    loaded.engine.close()
    return loaded.identity


def test_what_rounds_differently_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = identity()
    batched = [identity(batch_invariant=False, max_sequences=count) for count in (4, 16)]
    threads = identity(threads=2)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.99.0")
        newer = identity()
    assert len({plain, *batched, threads, newer}) == 5
    assert torch.__version__ in plain.device
    assert [identity.precision for identity in (plain, *batched)] == [
        "float32, rows alone",
        "float32, batches of up to 4 rows",
        "float32, batches of up to 16 rows",
    ]


def test_what_rounds_alike_is_equal() -> None:
    assert identity() == identity(max_sequences=3, max_positions=512, batch_invariant=True)


@pytest.mark.parametrize(
    ("precision", "batch_invariant", "text"),
    [
        ("bfloat16", False, "bfloat16, fused, batches of up to 16 rows"),
        ("bfloat16", True, "bfloat16, fused"),
        ("float32", False, "float32, fused"),
    ],
)
def test_fused_steps_say_what_they_round_by(precision: str, batch_invariant: bool, text: str) -> None:
    assert fused_precision_text(settings(max_sequences=16, gpu_precision=precision), batch_invariant) == text


def test_one_launch_is_another_identity() -> None:
    wanted = settings(device="cuda", gpu_decode="one_launch")
    assert fused_precision_text(wanted, batch_invariant=False) == (
        "bfloat16, fused, batches of up to 16 rows, one row in one launch"
    )
