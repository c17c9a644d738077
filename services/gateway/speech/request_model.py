"""What callers send as fields: models that overlook null, their errors as ours, and JSON that is
read only if it is not nested deeply.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from cosyserve.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
MOST_NESTED = 100
"""Arrays and objects inside each other. What reads, checks or quotes JSON calls itself for each;
nearer to Python's limit of 1,000 calls a destructor that runs meanwhile fails, too.
"""
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Lenient(BaseModel):
    """Fields that are null count as absent, unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


def validated(kind: type[M], values: Mapping[str, Any], *, where: str = "", whole: str = "the message") -> M:
    """`values` as a model. Raises InvalidRequest naming the first field that is wrong, or `whole`
    where it is no field. where: in front of the name.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or whole
        raise InvalidRequest(": ".join(filter(None, (where, field, first["msg"])))) from error


def require_flat(encoded: bytes, what: str) -> None:
    """Raises InvalidRequest, which names `what`, for JSON nested deeper than `MOST_NESTED`. Text
    that is not JSON may pass: reading it goes no deeper either.
    """
    if encoded.count(b"[") + encoded.count(b"{") <= MOST_NESTED:
        return
    brackets = _STRINGS.sub(b"", encoded).translate(_ONE_KIND, _ALL_BUT_BRACKETS)
    for _ in range(MOST_NESTED):
        brackets = brackets.replace(b"[]", b"")
    if b"[" in brackets:
        raise InvalidRequest(f"{what} nests arrays and objects more than {MOST_NESTED} deep")
