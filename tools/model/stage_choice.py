"""Commands that have a form for each stage: the first word names it, and without one it is
token2wav.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence

from cosyserve.commands.terminal.output import FAILED, report_failure

TOKEN2WAV = "token2wav"


def dispatched(usage: str, stages: Mapping[str, str], arguments: Sequence[str] | None) -> int:
    """The exit status of the stage's `main`, 1 where a library of it is missing. stages: the module
    of each.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    stage = given.pop(0) if given[0] in stages else TOKEN2WAV
    try:
        module = importlib.import_module(stages[stage])
    except ModuleNotFoundError as error:
        needed = f"this needs {error.name} for {stage}: pip install 'cosyserve-server[cpu,engines]'"
        return report_failure("", needed, FAILED, as_json="--json" in given)
    status: int = module.main(given)
    return status
