"""`python -m tools.model.build llm|token2wav ...`: engines for this machine's GPU. Without a stage:
token2wav.
"""

import sys
from functools import partial

from tools.model.output.command import TOKEN2WAV, dispatched

_STAGES = {"llm": "tools.model.build_llm", TOKEN2WAV: "tools.model.build_plans"}
_USAGE = """usage: cosyserve model build llm CHECKPOINT [...]
       cosyserve model build [token2wav] MODEL [...]

Build engines for this machine's GPU; each stage has its own --help.

  llm         a TensorRT-LLM engine, from what `cosyserve model convert --target trtllm-...` wrote
  token2wav   TensorRT plans of the flow and the vocoder"""

main = partial(dispatched, _USAGE, _STAGES)


if __name__ == "__main__":
    sys.exit(main())
