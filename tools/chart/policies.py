"""checkov over manifests: what fails has to be fixed, or skipped by an annotation with a reason."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError

_SECONDS = 600.0
_SKIP = "checkov.io/skip"


def failed(program: Path, texts: Mapping[str, str]) -> list[str]:
    """One line for each failed check of the streams of YAML, by their names. Raises SettingsError
    if checkov does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / f"{name}.yaml").write_text(text, encoding="utf-8")
        command: list[str | Path] = [program, "--directory", folder, "--framework", "kubernetes", "--compact"]
        command += ["--quiet", "--skip-download", "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    try:
        report: Any = json.loads(done.stdout)
        summary = report["summary"]
        found = report["results"]["failed_checks"]
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{program}: no report: {(done.stdout + done.stderr).strip()[-500:]}") from error
    if summary["parsing_errors"] or not summary["passed"]:
        raise SettingsError(f"{program}: {summary}")
    return sorted(f"{each['file_path']}: {each['resource']}: {each['check_id']} {each['check_name']}" for each in found)


def skips_without_reason(documents: list[dict[str, Any]]) -> list[str]:
    """Annotations that skip a check and do not say why."""
    return [
        f"{document['kind']} {document['metadata']['name']}: {value}"
        for document in documents
        for key, value in (document["metadata"].get("annotations") or {}).items()
        if key.startswith(_SKIP) and len(value.partition("=")[2].split()) < 4
    ]
