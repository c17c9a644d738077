"""Folders and the imports between them: few files in a folder, a sentence about each, no cycles.
That inside a service no import goes from a lower layer to a higher one is checked by import-linter.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = ("cosyserve", "services", "tools", "bench", "recipes")
GENERATED = ROOT / "cosyserve" / "v1"
MOST_FILES = 15
EDGE = "edge files"
"""Of the files that lie directly in the folder of a service."""
SERVICES = ("frontend", "llm", "token2wav", "orchestrator")
EVERYWHERE = "settings"
"""A module of plain values, which every layer of its service may import."""


def modules(*tops: str) -> Iterator[Path]:
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if GENERATED not in path.parents and "__pycache__" not in path.parts:
                yield path


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> Mapping[str, set[str]]:
    """By module, the modules of the product that it imports: wherever the statement is, under
    TYPE_CHECKING too.
    """
    known = {name_of(path): path for path in modules(*PRODUCT)}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        wanted = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= submodules & known.keys()
                if submodules - known.keys():
                    wanted.add(node.module)
        graph[name] = (wanted & known.keys()) - {name}
    return graph


def require_no_cycle(graph: Mapping[str, set[str]]) -> None:
    """Raises CycleError, which names the members of the first cycle, imported before importing."""
    TopologicalSorter(graph).prepare()


def folder_of(module: str, service: str) -> str:
    """The folder inside the service, EDGE for a file that lies in none."""
    parts = module.removeprefix(f"services.{service}").removeprefix(".").split(".")
    path = ROOT / "services" / service / parts[0]
    return parts[0] if parts[0] and path.is_dir() else EDGE


def inside(service: str) -> Iterator[tuple[str, str]]:
    """Importing and imported module, both of one service."""
    prefix = f"services.{service}."
    for module in (name for name in imports() if name.startswith(prefix)):
        for target in sorted(imports()[module]):
            if target.startswith(prefix) and target != prefix + EVERYWHERE:
                yield module, target


def test_a_folder_holds_at_most_15_files() -> None:
    counts = Counter(path.parent.relative_to(ROOT) for path in modules(*PRODUCT, "tests") if path.name != "__init__.py")
    assert not {str(folder): count for folder, count in counts.items() if count > MOST_FILES}


def test_every_package_says_in_one_sentence_what_it_holds() -> None:
    for folder in sorted({path.parent for path in modules(*PRODUCT)}):
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert text, folder
        assert re.fullmatch(r"(?:(?![.!?]\s+[A-Z]).)+\.", text, re.DOTALL), folder


def test_no_modules_import_each_other() -> None:
    require_no_cycle(imports())


@pytest.mark.parametrize("service", SERVICES)
def test_no_folders_of_a_service_import_each_other(service: str) -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for module, target in inside(service):
        importing, imported = folder_of(module, service), folder_of(target, service)
        if importing != imported:
            folders[importing].add(imported)
    require_no_cycle(folders)
