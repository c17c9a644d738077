"""`python -m tools.model.build llm|token2wav ...`: engines for this machine's GPU. Without a stage: token2wav."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence

_STAGES = {"llm": "tools.model.build_llm", "token2wav": "tools.model.build_plans"}
_USAGE = """usage: cosyserve model build llm CHECKPOINT [...]
       cosyserve model build [token2wav] MODEL [...]

Build engines for this machine's GPU; each stage has its own --help.

  llm         a TensorRT-LLM engine, from what `cosyserve model convert --target trtllm-...` wrote
  token2wav   TensorRT plans of the flow and the vocoder"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    stage = given.pop(0) if given[0] in _STAGES else "token2wav"
    if importlib.util.find_spec(_STAGES[stage]) is None:
        print(f"cosyserve: engines of {stage} cannot be built by this installation", file=sys.stderr)
        return 1
    status: int = importlib.import_module(_STAGES[stage]).main(given)
    return status


if __name__ == "__main__":
    sys.exit(main())
