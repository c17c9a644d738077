"""Random weights of the published sizes: what a GPU is measured with where the published weights
are not at hand.

    python -m bench.real_size DIR        a whole model directory, in seconds
"""

import argparse
import time
from pathlib import Path

from bench.real_size import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    target = parser.parse_args().directory
    started = time.perf_counter()
    write(target)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 1e9:.2f} GB in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
