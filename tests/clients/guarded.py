"""The orchestrator that wants a client certificate and a key, as a folder of files describes it."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Guarded:
    """certificate, its private_key and the authority: files. key: what callers present."""

    address: str
    key: str
    ca: Path
    certificate: Path
    private_key: Path

    @classmethod
    def of(cls, folder: Path, certificates: Path | None = None) -> "Guarded":
        """certificates: another folder, with a certificate that is not trusted."""
        address, key = ((folder / name).read_text(encoding="ascii") for name in ("address", "key"))
        files = certificates or folder
        return cls(address, key, files / "ca.crt", files / "tls.crt", files / "tls.key")


def add_guarded(parser: argparse.ArgumentParser) -> None:
    """The argument `guarded`, a folder."""
    parser.add_argument("guarded", type=Path, help="folder with address, key, ca.crt, tls.crt, tls.key and stranger/")
