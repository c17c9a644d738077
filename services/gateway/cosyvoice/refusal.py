"""Failures as CosyVoice's server gives them, which is FastAPI's form: `{"detail": ...}`."""

import re
from typing import Any

from starlette.responses import JSONResponse, Response

from services.gateway.speech.failures import Failure

REFUSAL_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["detail", "code"],
    "properties": {
        "detail": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "code": {"type": "string"},
    },
}
"""JSON schema of a failure."""
_FIELDS = {
    "prompt.audio": "prompt_wav",
    "prompt.transcript": "prompt_text",
    "the recording": "prompt_wav",
    "max_sentence_characters": "max_text_length",
    "instruction": "instruct_text",
    "voice": "spk_id",
    "text": "tts_text",
}
"""Names of the speech service for the fields of the forms."""
_OWN = ("prompt_wav", "prompt_text", "instruct_text", "sample_text")
_NAMES = "|".join(map(re.escape, (*_FIELDS, *_OWN)))
_NAMED = re.compile(rf"(?P<field>{_NAMES})(?= (?:has|is|lasts|holds) )")
UNPROCESSABLE = 422


def refusal(failure: Failure) -> Response:
    """A field of the form that is wrong has status 422 and FastAPI's list of what is wrong where;
    any other failure has its own status and a text.
    """
    field, message = failure.field, failure.message
    if (named := _NAMED.match(message)) is not None:
        field = _FIELDS.get(named["field"], named["field"])
        message = f"{field}{message[named.end() :]}"
    if failure.status != 400 or field is None:
        return JSONResponse({"detail": message, "code": failure.code}, failure.status, failure.headers)
    wrong = {"type": failure.code, "loc": ["body", field], "msg": message}
    return JSONResponse({"detail": [wrong], "code": failure.code}, UNPROCESSABLE, failure.headers)
