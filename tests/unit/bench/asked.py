"""A process for `bench.gpu.sharing.worker` to ask: it doubles, prints in between, fails, ends or
says nothing.
"""

import sys
import time
from collections.abc import Callable

from bench.gpu.sharing.worker import Answer, serve


def answer(question: Answer) -> Answer:
    print("a library says something")
    match question["do"]:
        case "double":
            return {"twice": 2 * question["of"]}
        case "end":
            sys.exit(3)
        case "wait":
            time.sleep(60)
    raise KeyError(question["do"])


def new_answer() -> Callable[[Answer], Answer]:
    if sys.argv[1] != "ready":
        raise ValueError("no such device\nand more")
    return answer


if __name__ == "__main__":
    serve(new_answer)
