"""`python -m tools.security BIN`: run bandit over the product, detect-secrets over the files of the
repository, and pip-audit over constraints.txt, all from the folder BIN of an environment.

Findings that `allowed.toml` names with a reason are left out. Status 1 if there are others, or if
an entry there matches nothing. pip-audit asks a database of PyPI; where that cannot be reached the
last line says that dependencies were not audited, and the status does not depend on them.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("cosyserve", "services", "tools", "recipes", "bench")
GENERATED = "cosyserve/v1"
_NO_TEXT = (".png", ".bin", ".binpb", ".pt", ".onnx", ".wav", ".npz", ".npy", ".safetensors", ".gz", ".flac", ".mp3")
_FILES_AT_ONCE = 200
_AUDIT_SECONDS = 120.0


@dataclass(frozen=True)
class Finding:
    """rule: of the scanner, such as B108 of bandit or `Secret Keyword` of detect-secrets."""

    rule: str
    file: str
    line: int
    text: str


def bandit(folder: Path) -> list[Finding]:
    """In the product's own code."""
    command: list[str | Path] = [folder / "bandit", "-q", "-r", *PRODUCT, "-x", GENERATED, "-f", "json"]
    results = _json_of(command, statuses=(0, 1))["results"]
    return [
        Finding(each["test_id"], each["filename"].removeprefix("./"), each["line_number"], each["issue_text"])
        for each in results
    ]


def text_files() -> list[str]:
    """Those that git keeps, from ROOT on."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [name for name in listed.split("\0") if name and not name.endswith(_NO_TEXT) and (ROOT / name).is_file()]


def secrets(folder: Path) -> list[Finding]:
    """In every file of text that git keeps; a finding shows no secret."""
    files, found = text_files(), list[Finding]()
    for begin in range(0, len(files), _FILES_AT_ONCE):
        results = _json_of([folder / "detect-secrets", "scan", *files[begin : begin + _FILES_AT_ONCE]])["results"]
        found += [
            Finding(each["type"], name, each["line_number"], "looks like a secret")
            for name, each_of_file in results.items()
            for each in each_of_file
        ]
    return found


def audit(folder: Path) -> tuple[list[Finding], int]:
    """Known vulnerabilities of the pinned dependencies, and how many were looked up."""
    command: list[str | Path] = [folder / "pip-audit", "--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    try:
        dependencies = _json_of(
            [*command, "--progress-spinner", "off", "--format", "json"], statuses=(0, 1), seconds=_AUDIT_SECONDS
        )["dependencies"]
    except (subprocess.TimeoutExpired, ValueError):
        return [], 0
    looked_up = [each for each in dependencies if "skip_reason" not in each]
    return [
        Finding(known["id"], "constraints.txt", 0, f"{each['name']} {each['version']}")
        for each in looked_up
        for known in each["vulns"]
    ], len(looked_up)


def judged(findings: Iterable[Finding], allowed: Sequence[dict[str, str]]) -> list[str]:
    """A line for each finding that is not allowed, and for each allowance that allows nothing."""
    used = set[int]()
    lines = []
    for finding in findings:
        matching = [
            number
            for number, entry in enumerate(allowed)
            if entry["rule"] == finding.rule and (finding.file + "/").startswith(entry.get("file", finding.file) + "/")
        ]
        used.update(matching)
        if not matching:
            lines.append(f"{finding.file}:{finding.line}: {finding.rule}: {finding.text}")
    return lines + [
        f"allowed.toml: {entry['rule']} {entry.get('file', '')} matches nothing any more"
        for number, entry in enumerate(allowed)
        if number not in used
    ]


def _json_of(command: Sequence[str | Path], statuses: Sequence[int] = (0,), seconds: float | None = None) -> Any:
    """Raises ValueError for output that is no JSON."""
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    if done.returncode not in statuses:
        raise ValueError(f"{command[0]} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.security", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="BIN")
    folder: Path = parser.parse_args(arguments).folder.absolute()
    allowed = tomllib.loads(Path(__file__).with_name("allowed.toml").read_text(encoding="utf-8"))["allowed"]
    found, looked_up = audit(folder)
    by_scanner = {"bandit": bandit(folder), "detect-secrets": secrets(folder), "pip-audit": found}
    for name, findings in by_scanner.items():
        print(f"{name}: {len(findings)} findings")
    lines = judged([finding for findings in by_scanner.values() for finding in findings], allowed)
    print("\n".join(lines) if lines else "every finding has its reason in tools/security/allowed.toml")
    if not looked_up:
        print("dependencies were NOT audited: the database of known vulnerabilities cannot be reached")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
