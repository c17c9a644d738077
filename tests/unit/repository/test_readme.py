"""README and docs promise only what exists: make targets, subcommands, settings, RPCs,
files.
"""

import dataclasses
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cosyserve.__main__ import parser
from cosyserve.v1 import frontend_pb2, info_pb2, llm_pb2, synthesis_pb2, token2wav_pb2
from tests.unit.repository.test_images import SETTINGS

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "models").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
METHODS = {
    f"{service.full_name}/{method.name}"
    for module in (frontend_pb2, info_pb2, llm_pb2, synthesis_pb2, token2wav_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
SETTINGS_KNOWN = {
    f"COSYSERVE_{service.upper()}_{field.name.upper()}"
    for service, settings in SETTINGS.items()
    for field in dataclasses.fields(settings)
}


def code(page: Path) -> str:
    """Everything that looks like something to type: fenced shell blocks and `inline code`."""
    text = page.read_text(encoding="utf-8")
    blocks = [body for language, body in FENCE.findall(text) if language in {"bash", "sh", "console"}]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", FENCE.sub("", text))])


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_links_and_methods_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:\$ )?make ([a-z-]+)", code(page), re.MULTILINE)) <= make_targets()
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text))
    files = [link.partition("#")[0] for link in links if not re.match(r"https?://|#", link)]
    assert not [file for file in files if not (page.parent / file).exists()]
    assert set(re.findall(r"cosyserve\.v1\.\w+/\w+", text)) <= METHODS


@pytest.mark.parametrize("name", ["engines.md", "doctor.md"])
def test_settings_and_lines_of_engines_and_doctor_are_understood(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert (
        set(re.findall(r"COSYSERVE_(?:FRONTEND|LLM|TOKEN2WAV|ORCHESTRATOR|GATEWAY)_[A-Z0-9_]+", text)) <= SETTINGS_KNOWN
    )
    lines = re.findall(r"(?:`|^)cosyserve ((?:start|doctor|info)\b[^`\n|]*)", text, re.MULTILINE)
    assert lines
    for line in lines:
        assert parser().parse_args(shlex.split(line)).command == line.split()[0]


def test_three_questions_have_one_file_each() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| \[([\w/.]+)\]\(\.\./\2\) \|$", page, re.MULTILINE)
    assert [question for question, _ in rows] == ["the next hop decided", "a voice stored", "a failed stage replaced"]
    assert all((ROOT / path).is_file() for _, path in rows)


def test_subcommands_exist() -> None:
    usage = subprocess.run(
        [sys.executable, "-m", "cosyserve", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert usage.returncode == 0, usage.stderr
    for page in PAGES:
        for name in re.findall(r"(?:^|[\s/])cosyserve ([a-z]+)\b", code(page), re.MULTILINE):
            assert re.search(rf"\b{name}\b", usage.stdout), f"{page.name} names `cosyserve {name}`"


def test_the_tree_names_what_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = next(body for language, body in FENCE.findall(text) if language == "text" and "services/" in body)
    folders: list[str] = []
    missing = []
    for line in tree.splitlines():
        match = re.match(r"( *)([\w./*-]+)", line)
        if not match:
            continue
        depth = len(match[1]) // 2
        folders[depth:] = [match[2]]
        if not list(ROOT.glob("/".join(folder.strip("/") for folder in folders))):
            missing.append(line)
    assert not missing


def test_the_page_of_targets_lists_every_target() -> None:
    text = (ROOT / "docs" / "make-targets.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `make ([a-z-]+)` \|", text, re.MULTILINE), "help"} == make_targets()


def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    ).stdout
    assert {line.split()[1] for line in shown.splitlines()} == make_targets()
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(phony[1].split()) == make_targets()
