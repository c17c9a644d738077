"""The published model directory, read as data.

Its yaml is hyperpyyaml, which constructs whatever class it names. Here its tags are inert:
`!new:`, `!name:` and `!apply:` become mappings that remember the dotted path, `!ref` is resolved
over names and products of numbers, and any other tag is refused by name. Source: compatibility
specification section 1.
"""

import hashlib
import json
import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from cosyserve.errors import ModelError

_CONSTRUCTION_TAGS = ("!new:", "!name:", "!apply:")
_REFERENCE = re.compile(r"<([A-Za-z0-9_.]+)>")
_YAML_NAME = re.compile(r"cosyvoice(\d*)\.yaml")
"""The name of the yaml of a generation, with its number or, in older snapshots, without."""
DECODER_YAML = "flow.yaml"
"""Describes a directory that holds a flow and a vocoder alone."""


@dataclass(frozen=True)
class Node:
    """A `!new:path`, `!name:path` or `!apply:path` entry: its dotted path and its arguments. It is
    never called.
    """

    path: str
    arguments: Any = field(default_factory=dict)


class _DataLoader(yaml.SafeLoader):
    pass


def _construct(loader: _DataLoader, suffix: str, node: yaml.Node) -> Node:
    if isinstance(node, yaml.MappingNode):
        return Node(suffix, loader.construct_mapping(node, deep=True))
    if isinstance(node, yaml.SequenceNode):
        return Node(suffix, loader.construct_sequence(node, deep=True))
    return Node(suffix)


class _Reference(str):
    pass


def _reference(loader: _DataLoader, node: yaml.Node) -> _Reference:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.constructor.ConstructorError(None, None, "!ref takes a scalar", node.start_mark)
    return _Reference(loader.construct_scalar(node))


for _tag in _CONSTRUCTION_TAGS:
    _DataLoader.add_multi_constructor(_tag, _construct)
_DataLoader.add_constructor("!ref", _reference)


class Shaped(Protocol):
    """Anything with a shape: a torch tensor or a numpy array."""

    @property
    def shape(self) -> Any: ...


def _place_of(yaml_name: str) -> tuple[bool, int, str]:
    """Where a name is in the order of preference."""
    named = _YAML_NAME.fullmatch(yaml_name)
    return named is None, -int(named[1] or 0) if named else 0, yaml_name


class ModelDirectory:
    """One model directory; raises ModelError naming the file for everything that is missing or
    malformed.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise ModelError(f"{path}: no such model directory")
        self.path = path
        self._hashes: dict[tuple[tuple[str, int, int], ...], Future[str]] = {}

    def file(self, name: str) -> Path:
        """The path of a file that must exist."""
        path = self.path / name
        if not path.exists():
            raise ModelError(f"{path}: missing; a model directory needs it")
        return path

    @property
    def yaml_name(self) -> str:
        """The file that describes the directory: a cosyvoice*.yaml, one whose name has a number and
        nothing else before others, or else flow.yaml. Raises ModelError if there is none.
        """
        names = [path.name for path in self.path.glob("cosyvoice*.yaml")]
        if not names and (self.path / DECODER_YAML).exists():
            return DECODER_YAML
        if not names:
            raise ModelError(f"{self.path / 'cosyvoice*.yaml'}: missing; a model directory needs one")
        return min(names, key=_place_of)

    def config(self) -> dict[str, Any]:
        """The yaml as plain data: mappings, lists, numbers, strings and `Node`s, references
        resolved.
        """
        path = self.file(self.yaml_name)
        try:
            data = yaml.load(path.read_text(encoding="utf-8"), Loader=_DataLoader)  # noqa: S506 - a SafeLoader subclass
        except yaml.constructor.ConstructorError as error:
            mark = error.problem_mark
            place = f"line {mark.line + 1}" if mark else "unknown line"
            raise ModelError(
                f"{path}: {error.problem} ({place}); only !new:, !name:, !apply: and !ref are read"
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: not valid yaml: {error}") from error
        if not isinstance(data, dict):
            raise ModelError(f"{path}: expected a mapping at the top")
        resolved: dict[str, Any] = _resolve(data, data, path)
        return resolved

    def section(self, *keys: str) -> dict[str, Any]:
        """The arguments of a nested constructor, e.g. section("flow", "encoder"); raises ModelError
        naming the missing key.
        """
        value: Any = self.config()
        for depth, key in enumerate(keys):
            if isinstance(value, Node):
                value = value.arguments
            if not isinstance(value, dict) or key not in value:
                raise ModelError(f"{self.path}: the yaml has no key {'.'.join(keys[: depth + 1])}")
            value = value[key]
        arguments = value.arguments if isinstance(value, Node) else value
        if not isinstance(arguments, dict):
            raise ModelError(f"{self.path}: yaml key {'.'.join(keys)} is not a mapping")
        return arguments

    def content_hash(self, names: Iterable[str]) -> str:
        """sha256 over the named files in order (hex, first 16 digits): the identity of loaded
        weights. Cached until a file changes.
        """
        return self.begin_hash(names).result()

    def begin_hash(self, names: Iterable[str]) -> "Future[str]":
        """Begin to compute the content hash in a thread: of gigabytes it takes seconds, in which
        the same files can be loaded. Raises ModelError for a missing file.
        """
        file_states = tuple((name, (stat := self.file(name).stat()).st_size, stat.st_mtime_ns) for name in names)
        known = self._hashes.get(file_states)
        if known is None or (known.done() and known.exception() is not None):
            known = Future[str]()
            files = [(name, self.file(name)) for name, _, _ in file_states]
            threading.Thread(target=_hash, args=(files, known), name="content-hash", daemon=True).start()
            self._hashes[file_states] = known
        return known


def _hash(files: Sequence[tuple[str, Path]], hashed: "Future[str]") -> None:
    digest = hashlib.sha256()
    try:
        for name, path in files:
            digest.update(name.encode())
            with path.open("rb") as stream:
                hashlib.file_digest(stream, lambda: digest)  # updates it
    except OSError as error:
        hashed.set_exception(ModelError(f"{error.filename or path}: {error.strerror or error}"))
    except Exception as error:
        hashed.set_exception(error)
    else:
        hashed.set_result(digest.hexdigest()[:16])


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises ModelError naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not valid json: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected an object at the top")
    return content


def check_tensors(path: Path, tensors: Mapping[str, Shaped], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ModelError unless `tensors` has exactly the names and shapes of `expected`; the message
    names each offending tensor.
    """
    problems = [f"missing tensor {name} {list(shape)}" for name, shape in expected.items() if name not in tensors]
    problems += [f"extra tensor {name} {list(tensors[name].shape)}" for name in tensors if name not in expected]
    problems += [
        f"tensor {name} has shape {list(tensors[name].shape)}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(shape)
    ]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise ModelError(f"{path}: {shown}")


def _resolve(value: Any, root: dict[str, Any], path: Path, depth: int = 0) -> Any:
    if depth > 64:
        raise ModelError(f"{path}: references nest deeper than 64 (a cycle?)")
    if isinstance(value, _Reference):
        return _evaluate(value, root, path, depth)
    if isinstance(value, dict):
        return {key: _resolve(item, root, path, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, root, path, depth + 1) for item in value]
    if isinstance(value, Node):
        return Node(value.path, _resolve(value.arguments, root, path, depth + 1))
    return value


def _evaluate(reference: str, root: dict[str, Any], path: Path, depth: int) -> Any:
    """`<name>` is the value itself; `<a> * <b>`, the only arithmetic in the published files, is the
    product.
    """
    factors = []
    for part in reference.split("*"):
        match = _REFERENCE.fullmatch(part.strip())
        if match is None:
            raise ModelError(f"{path}: !ref {reference!r} is neither <name> nor a product of names")
        if match[1] not in root:
            raise ModelError(f"{path}: !ref {reference!r} names the unknown key {match[1]}")
        factors.append(_resolve(root[match[1]], root, path, depth + 1))
    if len(factors) == 1:
        return factors[0]
    if not all(isinstance(factor, int | float) for factor in factors):
        raise ModelError(f"{path}: !ref {reference!r} multiplies something that is not a number")
    return math.prod(factors)
