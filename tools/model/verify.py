"""`python -m tools.model.verify llm|token2wav ...`: engines against the reference path. Without a
stage: token2wav.
"""

import sys
from functools import partial

import torch

from tools.model.output.command import TOKEN2WAV, dispatched

_STAGES = {"llm": "tools.model.verify_llm", TOKEN2WAV: "tools.model.verify_token2wav"}
_USAGE = """usage: cosyserve model verify llm MODEL [CONVERSION] [...]
       cosyserve model verify [token2wav] MODEL [...]

Compare what was made of a model with the reference path, layer by layer where it differs; each
stage has its own --help.

  llm         what `cosyserve model convert` wrote, or the engine that runs it
  token2wav   the exported graphs, or the TensorRT plans"""

main = partial(dispatched, _USAGE, _STAGES)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
