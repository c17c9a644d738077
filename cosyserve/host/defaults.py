"""Where the model and the voices are on this machine if no option names them."""

import os
from pathlib import Path

_DEMO_MODEL = Path("models") / "demo"


def model_directory(given: Path | None) -> Path:
    """The requested directory, else the bundled model next to the package, else the one in the
    working directory.
    """
    if given is not None:
        return given
    bundled = Path(__file__).resolve().parents[2] / _DEMO_MODEL
    return bundled if bundled.is_dir() else _DEMO_MODEL


def voices_url() -> str:
    """Where `cosyserve up` stores voices by default: COSYSERVE_FRONTEND_VOICES_URL, else the data
    directory of the user.
    """
    url = os.environ.get("COSYSERVE_FRONTEND_VOICES_URL")
    if url:
        return url
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(Path(data) / "cosyserve" / "voices")
