"""Settings: one frozen dataclass per service, read once from the environment.

Field `listen` of a dataclass read under prefix `COSYSERVE_LLM_` is the variable
`COSYSERVE_LLM_LISTEN`. A field without a default must be set. An unknown variable under the prefix
stops the start, so that a typing error never becomes a silent default. Kubernetes injects
service-link variables (`COSYSERVE_LLM_SERVICE_HOST`, `COSYSERVE_LLM_PORT=tcp://...`) for a Service
with such a name; they are recognised by their form and ignored.
"""

import dataclasses
import difflib
import math
import os
import re
import tempfile
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cosyserve.errors import SettingsError

_SERVICE_LINK = re.compile(
    r"(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_SERVICE_LINK_URL = re.compile(r"(?:tcp|udp|sctp)://")
T = TypeVar("T")
SERVICES = ("FRONTEND", "LLM", "TOKEN2WAV", "ORCHESTRATOR", "GATEWAY")
CACHE_DIRECTORY, GPU_SHARING, API_KEY = "COSYSERVE_CACHE_DIR", "COSYSERVE_GPU_SHARING", "COSYSERVE_API_KEY"
TRACE_FILE = "COSYSERVE_TRACE_FILE"
SHARED = (CACHE_DIRECTORY, GPU_SHARING, API_KEY, TRACE_FILE)
"""Variables that belong to no service."""

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def load(cls: type[T], prefix: str, environ: Mapping[str, str]) -> T:
    """Build the settings dataclass `cls` from the variables of `environ` that begin with `prefix`.

    Field types: str, int, float, bool, Path, tuple[str, ...] (comma separated), and any of these or
    None. Raises SettingsError naming the variable that is missing, unknown or of the wrong form;
    also one of no service whose name is nearly that of a setting.
    """
    require_meant(environ)
    hints = typing.get_type_hints(cls)
    fields = {field.name.upper(): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(prefix):
            continue
        name = variable.removeprefix(prefix)
        if name in fields:
            values[fields[name].name] = _parse(variable, text, hints[fields[name].name])
        elif not _is_service_link(name, text):
            known = [f"{prefix}{name}" for name in sorted(fields)]
            raise SettingsError(
                f"{variable} is not a setting of this service; {_meant(variable, known)}known: {', '.join(known)}"
            )
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise SettingsError(f"{prefix}{name} is not set and has no default")
    try:
        return cls(**values)
    except ValueError as error:
        raise SettingsError(f"{prefix}*: {error}") from error


def require_range(
    settings: object,
    names: Iterable[str],
    message: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Raise ValueError unless each of these fields is None or a number in the range. message: is
    formatted with `name`, `NAME` in capitals, `value`, `least` and `most`. above: itself excluded.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not (least <= value <= most and value > above):
            raise ValueError(message.format(name=name, NAME=name.upper(), value=value, least=least, most=most))


def require_meant(environ: Mapping[str, str]) -> None:
    """Raise SettingsError for a COSYSERVE_* variable that no service reads and whose name is close
    to one that a service does read. Other names are ignored: an orchestrator may inject variables
    of its own.
    """
    for variable, text in environ.items():
        name = variable.removeprefix("COSYSERVE_")
        service, _, field = name.partition("_")
        if name == variable or variable in SHARED or service in SERVICES or _is_service_link(name, text):
            continue
        services = [f"COSYSERVE_{near}_{field}" for near in difflib.get_close_matches(service, SERVICES, 1) if field]
        if near := services + difflib.get_close_matches(variable, SHARED, 1, 0.85):
            raise SettingsError(f"{variable} is not a setting; did you mean {near[0]}?")


def _meant(variable: str, known: list[str]) -> str:
    near = difflib.get_close_matches(variable, known, 1, 0.8)
    return f"did you mean {near[0]}? " if near else ""


def _is_service_link(name: str, text: str) -> bool:
    if _SERVICE_LINK.fullmatch(name):
        return True
    return (name == "PORT" or name.endswith("_PORT")) and bool(_SERVICE_LINK_URL.match(text))


def _parse(variable: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if text == "":
            return None
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        if kind is bool:
            lowered = text.lower()
            if lowered not in _TRUE | _FALSE:
                raise ValueError("expected true or false")
            return lowered in _TRUE
        if kind in (int, float, str, Path):
            return kind(text)
    except ValueError as error:
        raise SettingsError(f"{variable}={text!r} is not a valid {kind.__name__}: {error}") from error
    raise TypeError(f"settings field of unsupported type {kind}")


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory for files that can be recreated, such as compiled kernels and built engines:
    COSYSERVE_CACHE_DIR, else `cosyserve` in the user's cache directory (XDG_CACHE_HOME, else
    ~/.cache). Absolute; may not exist yet.
    """
    if directory := environ.get(CACHE_DIRECTORY):
        return Path(directory).absolute()
    if home := environ.get("XDG_CACHE_HOME"):
        return Path(home).absolute() / "cosyserve"
    if home := environ.get("HOME"):
        return Path(home).absolute() / ".cache" / "cosyserve"
    # Directly in the temporary directory, whose sticky bit keeps other users from renaming it.
    return Path(tempfile.gettempdir()).absolute() / f"cosyserve-cache-{os.geteuid()}"
