"""What a process that a test starts has in its environment."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the repository before what its PYTHONPATH names already: packages may
    lie there.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        **more,
    }
