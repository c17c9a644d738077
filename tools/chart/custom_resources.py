"""Whether custom resources fit the schemas of their projects, and whether a misspelt field of them
would be noticed.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jsonschema

from tools.chart.crd_schemas import has_schema, kind_of, refused, schema
from tools.chart.rendering import Manifest

_FREE = {"labels", "annotations", "matchLabels"}
"""Fields whose keys are anyone's choice."""
TRIGGERS = {
    "prometheus": {
        "serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "namespace", "authModes",
        "unsafeSsl", "customHeaders", "queryParameters", "timeout",
    },
    "cpu": {"value", "containerName"},
}  # fmt: skip
"""Keys of a trigger's metadata by its type (KEDA, Scalers), which its schema leaves open."""
Path = tuple[str | int, ...]
Faults = Callable[[Iterable[Manifest]], list[str]]


def field_faults(documents: Iterable[Manifest]) -> list[str]:
    """Unknown fields, missing ones and wrong types."""
    return [line for document in documents if has_schema(document) for line in _field_faults(document)]


def faults(documents: Iterable[Manifest]) -> list[str]:
    """Those, and values that the validators of the packages refuse."""
    custom = [document for document in documents if has_schema(document)]
    return field_faults(custom) + refused(custom)


def _field_faults(document: Manifest) -> list[str]:
    where = f"{document['kind']} {document['metadata']['name']}"
    found = jsonschema.Draft7Validator(schema(kind_of(document))).iter_errors(document)
    lines = [f"{where}: {'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]
    if document["kind"] == "ScaledObject":
        for trigger in document.get("spec", {}).get("triggers", []):
            unknown = trigger.get("metadata", {}).keys() - TRIGGERS.get(trigger.get("type"), set())
            lines += [f"{where}: a trigger {trigger.get('type')} has no {key}" for key in sorted(unknown)]
    return lines


def misspelt(document: Manifest) -> Iterator[tuple[Path, Manifest]]:
    """The document with each of its fields misspelt in turn, kind and name apart, and the path of
    that field.
    """
    for path in _fields(document, ()):
        changed = copy.deepcopy(document)
        holder: Any = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[f"{path[-1]}x"] = holder.pop(path[-1])
        yield path, changed


def _fields(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if (*path, key) not in (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")):
                yield (*path, key)
            if key not in _FREE:
                yield from _fields(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _fields(inner, (*path, number))


def unnoticed(document: Manifest, check: Faults = field_faults) -> list[str]:
    """The fields of which `check` does not notice that they are misspelt."""
    return [".".join(map(str, path)) for path, changed in misspelt(document) if not check([changed])]
