"""Folders and the imports between them: few files in a folder, a sentence about each, no cycles,
and inside a service no import from a lower layer to a higher one.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = ("cosyserve", "services", "tools", "bench", "recipes")
GENERATED = {ROOT / "cosyserve" / "v1", ROOT / "cosyserve" / "foreign"}
MOST_FILES = 15
EDGE = "edge files"
"""The layer of the files that lie directly in the folder of a service."""
LAYERS = {
    "frontend": [
        {EDGE},
        {"prompts"},
        {"analysis", "voices"},
        {"ssml", "recordings"},
        {"normalization"},
        {"tokenizers", "segmentation"},
        {"text"},
    ],
    "llm": [{EDGE, "loading"}, {"hosted"}, {"backends"}, {"gpu"}, {"engine"}, {"guards"}, {"generation"}],
    "token2wav": [
        {EDGE, "loading"},
        {"scheduling", "engines", "gpu"},
        {"guards", "decoders"},
        {"flow", "vocoder"},
        {"inputs"},
    ],
    "orchestrator": [
        {EDGE},
        {"riva"},
        {"foreign"},
        {"processes"},
        {"stages"},
        {"faults"},
        {"load_control"},
        {"aligning"},
        {"access"},
        {"speech"},
    ],
    "gateway": [
        {EDGE},
        {"serving"},
        {"page", "elevenlabs", "vllm_omni", "jambonz", "wyoming"},
        {"cosyvoice", "websocket"},
        {"openai"},
        {"speech"},
    ],
}
"""Top first. A module imports from its own layer and from those below."""
EVERYWHERE = "settings"
"""A module of plain values, which every layer of its service may import."""
APPLICATION = ("cosyserve/host/", "cosyserve/commands/", "cosyserve/capacity/")
NAMED_IN_THE_FOUNDATION = (
    "cosyserve/client/types.py",  # the fields of a summary in the public contract
    "cosyserve/engines/benchmark_note.py",  # both `start` and the services read a note
    "cosyserve/generations/",  # the published files, as data
    "cosyserve/metrics/names.py",  # names of metrics and values of their labels
    "cosyserve/traces/first_sound.py",  # names of spans
)
"""Where the foundation names services and weight files, and why."""
SERVICE_OR_WEIGHTS = re.compile("|".join(LAYERS) + r"|.*[\w*]\.(pt|onnx|safetensors)\b.*", re.DOTALL)


def modules(*tops: str) -> Iterator[Path]:
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not GENERATED & set(path.parents) and "__pycache__" not in path.parts:
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


def cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """One line for each cycle, in the direction of the imports."""
    left = {name: set(targets) for name, targets in graph.items()}
    lines = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle = error.args[1]
            lines.append(" -> ".join(reversed(cycle)))
            left[cycle[1]].remove(cycle[0])
        else:
            return lines


def folder_of(module: str, service: str) -> str:
    """The folder inside the service, EDGE for a file that lies in none."""
    parts = module.removeprefix(f"services.{service}").removeprefix(".").split(".")
    path = ROOT / "services" / service / parts[0]
    return parts[0] if parts[0] and path.is_dir() else EDGE


def inside(service: str) -> Iterator[tuple[str, str]]:
    """Importing and imported module, both of one service."""
    prefix = f"services.{service}."
    for module, targets in imports().items():
        if module.startswith(prefix):
            for target in sorted(targets):
                if target.startswith(prefix) and target != prefix + EVERYWHERE:
                    yield module, target


def test_a_folder_holds_at_most_15_files() -> None:
    counts = Counter(path.parent.relative_to(ROOT) for path in modules(*PRODUCT, "tests") if path.name != "__init__.py")
    assert not {str(folder): count for folder, count in counts.items() if count > MOST_FILES}


def test_every_package_says_in_one_sentence_what_it_holds() -> None:
    wrong = {}
    for folder in sorted({path.parent for path in modules(*PRODUCT)}):
        package = folder / "__init__.py"
        text = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) if package.is_file() else None
        if not text or not re.fullmatch(r"(?:(?![.!?]\s+[A-Z]).)+\.", text, re.DOTALL):
            wrong[str(folder.relative_to(ROOT))] = text
    assert not wrong


def test_no_modules_import_each_other() -> None:
    assert not cycles(imports())


def test_the_foundation_names_no_service_and_no_weight_file() -> None:
    naming = set()
    for path in modules("cosyserve"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = (node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in documented)
        if any(isinstance(text, str) and SERVICE_OR_WEIGHTS.fullmatch(text) for text in strings):
            naming.add(path.relative_to(ROOT).as_posix())
    assert not {name for name in naming if not name.startswith((*APPLICATION, *NAMED_IN_THE_FOUNDATION))}
    assert not [kept for kept in NAMED_IN_THE_FOUNDATION if not any(name.startswith(kept) for name in naming)]


@pytest.mark.parametrize("service", LAYERS)
def test_no_folders_of_a_service_import_each_other(service: str) -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for module, target in inside(service):
        pair = folder_of(module, service), folder_of(target, service)
        if pair[0] != pair[1]:
            folders[pair[0]].add(pair[1])
    assert not cycles(folders)


@pytest.mark.parametrize("service", LAYERS)
def test_no_import_goes_up(service: str) -> None:
    depth = {folder: number for number, layer in enumerate(LAYERS[service]) for folder in layer}
    present = {folder_of(module, service) for pair in inside(service) for module in pair}
    assert not present - depth.keys(), "a folder without a layer"
    upward = [
        f"{module} -> {target}"
        for module, target in inside(service)
        if depth[folder_of(target, service)] < depth[folder_of(module, service)]
    ]
    assert not upward
