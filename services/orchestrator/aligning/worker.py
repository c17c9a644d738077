"""`python -m services.orchestrator.aligning.worker`: aligns sentences, one after another, for the
orchestrator that started it, until its standard input ends.

A request is a line of JSON, `{"words": [...], "bytes": N}`, and N bytes of sound (mono s16le,
24 kHz); its answer is a line, `{"spans": [[start, end], ...]}` in seconds or `{"reason": R}` with R
of `untimed.Reason`. The first line says that it is ready: `{}`.

It yields to whatever else wants the processor: words may wait, sound may not.
"""

import json
import os
import signal
import sys
from typing import BinaryIO

from services.orchestrator.aligning.acoustic import AcousticModel
from services.orchestrator.aligning.untimed import Reason, Untimed

_NICENESS = 10


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end, also in the middle of one."""
    model = AcousticModel()
    _write(answers, {})
    while line := requests.readline():
        request = json.loads(line)
        pcm = requests.read(request["bytes"])
        if len(pcm) < request["bytes"]:
            return
        _write(answers, _answer(model, request["words"], pcm))
        model.tidy()


def _answer(model: AcousticModel, words: list[str], pcm: bytes) -> dict[str, object]:
    try:
        return {"spans": model.align(words, pcm)}
    except Untimed as untimed:
        return {"reason": untimed.reason.value}
    except Exception:  # of the library, of any kind; its text may have the words
        model.reset()
        return {"reason": Reason.NOT_ALIGNED.value}


def _write(answers: BinaryIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def main() -> None:
    """The command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal it is for the parent, which then closes the pipe
    os.nice(_NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
