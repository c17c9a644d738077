"""Weights on the disk and kernels in the compiler's cache: `python -m bench.gpu.prepare MODEL
[llm ROWS ...]`.

The model directory of `bench.real_size`, unless it is there. With `llm ROWS ...`: the kernels of
decode steps of so many rows (0: of a chunk of prompts; one: of a step of one launch).
"""

import hashlib
import shutil
import sys
from pathlib import Path

COMPLETE = "complete"
"""A file in the directory that says that nothing is missing."""


def model(target: Path) -> None:
    """Random weights of the published sizes in `target`; what other code has left there is written
    again.
    """
    from bench import real_size
    from bench.generations import random_weights

    mark = target / COMPLETE
    sources = [Path(str(module.__file__)).read_bytes() for module in (real_size, random_weights)]
    source_hash = hashlib.sha256(b"".join(sources)).hexdigest()
    if mark.exists() and mark.read_text() == source_hash:
        print(f"{target} is there")
        return
    shutil.rmtree(target, ignore_errors=True)
    real_size.write(target)
    mark.write_text(source_hash)
    print(f"{target} written")


def llm(rows: list[str]) -> None:
    import torch

    from bench.gpu import kernels
    from bench.gpu.llm.decode_steps import captured, filled, published_model
    from bench.gpu.llm.one_launch import reason_instead
    from services.llm.gpu.one_launch import OneLaunchStep
    from services.llm.gpu.prefill import PrefillStep

    kernels.keep()
    packed = published_model()
    for count in rows:
        if count == "one":
            with reason_instead():
                OneLaunchStep(packed, filled(packed, 300)).launch()
        elif int(count):
            captured(packed, int(count), 300)
        else:
            PrefillStep(packed, filled(packed, 300)).launch()
    torch.cuda.synchronize()


def main() -> None:
    match sys.argv[1:]:
        case ["llm", *rows] if rows:
            llm(rows)
        case [target]:
            model(Path(target))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
