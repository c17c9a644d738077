"""`cosyserve model verify llm --runtime vllm` passes a correct engine, also in bfloat16, the
default of `convert`.
"""

from pathlib import Path

import pytest

from tests.vllm.conftest import MODEL
from tools.model import verify


@pytest.mark.parametrize("form", ["hf-bfloat16", "vllm-bfloat16"])
def test_a_right_engine_in_bfloat16_passes(form: str, conversions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = verify.main(["llm", str(MODEL), str(conversions / form), "--runtime", "vllm"])
    rows = [line for line in capsys.readouterr().out.splitlines() if "differing of" in line]
    print("\n".join(rows))
    assert (status, len(rows)) == (0, 7)
    assert "all sentences" in rows[-1]
