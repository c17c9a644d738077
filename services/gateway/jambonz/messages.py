"""The messages of `/jambonz/stream` in both directions, and what its address asks for."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import QueryParams

from cosyserve.audio.encoding import Encoding
from cosyserve.client.options import SynthesisOptions
from cosyserve.errors import InvalidRequest
from services.gateway.jambonz.synthesis import RATES, language_tag
from services.gateway.websocket.conversation import read_object


class Message(BaseModel):
    """stream: more text. flush: the text is complete, speak it to its end. clear: stop at once and
    drop what waits. stop: close when everything is spoken. keepalive: a sign of life. Other types
    are ignored.
    """

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str = ""


def read_message(text: str | None) -> Message:
    """text: None for a binary frame. Raises InvalidRequest."""
    values = read_object(text)
    try:
        return Message.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the message"
        raise InvalidRequest(f"{field}: {first['msg']}") from error


class Form(BaseModel):
    """The parameters of the address, of which jambonz sends the first three."""

    model_config = ConfigDict(extra="ignore")

    voice: str = ""
    language: str = ""
    sampleRate: int = RATES[0]  # noqa: N815  # its name in jambonz
    encoding: Literal[Encoding.LINEAR16, Encoding.MULAW] = Encoding.LINEAR16
    """Ours: jambonz expects linear16."""
    seed: int | None = None
    """Ours."""

    def options(self) -> SynthesisOptions:
        """Without the voice."""
        return SynthesisOptions(
            language_code=language_tag(self.language),
            sample_rate=self.sampleRate,
            encoding=self.encoding,
            seed=self.seed,
        )


def read_form(query: QueryParams) -> Form:
    """Raises InvalidRequest naming the parameter."""
    try:
        form = Form.model_validate(dict(query))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if form.sampleRate not in RATES:
        raise InvalidRequest(f"sampleRate is {form.sampleRate}, allowed are {', '.join(map(str, RATES))}")
    if form.seed is not None and not 0 <= form.seed < 1 << 64:
        raise InvalidRequest("seed is outside of 0 to 2^64 - 1")
    return form


def connect_message(form: Form) -> dict[str, Any]:
    """The first message: audio is binary, at this rate."""
    return {"type": "connect", "data": {"sample_rate": form.sampleRate, "base64_encoding": False}}


def error_message(text: str) -> dict[str, Any]:
    """A part of the text was not spoken, or the connection is about to be closed."""
    return {"type": "error", "error": text}
