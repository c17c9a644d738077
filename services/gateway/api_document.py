"""The OpenAPI document of the gateway: FastAPI's, with the answers that it cannot know. Middlewares
and the speech service refuse requests, and a refusal is never FastAPI's own (422).
"""

from typing import Any

from fastapi import FastAPI
from starlette.routing import compile_path

REFUSALS = {
    "400": "A value that is wrong, or a body that cannot be read.",
    "401": "The server wants an API key, and none came or one that is not valid.",
    "403": "The page of another origin, or what the caller may not do.",
    "404": "There is no such path, voice or model.",
    "408": "The request did not arrive in its time.",
    "409": "There is such a voice already.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "429": "The server is full, or a limit of the key is reached; `retry-after-ms` says when to come back.",
    "431": "The head of the request is too large.",
    "500": "The speech service or the gateway failed.",
    "503": "The speech service cannot be reached, the gateway is full or being stopped.",
    "504": "The speech service took too long.",
}
"""Status and meaning of every answer that any request may get in place of its own."""
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"enum": ["invalid_request_error", "rate_limit_error", "server_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_SCHEMA = {"$ref": "#/components/schemas/Error"}
_OPENAI = {"application/json": {"schema": _SCHEMA}}
_UNUSED = ("HTTPValidationError", "ValidationError")
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The API key, for a server that wants one."},
    "xi-api-key": {"type": "apiKey", "in": "header", "name": "xi-api-key", "description": "The same."},
}
_OPTIONAL_KEY: list[dict[str, list[str]]] = [{}, {"bearer": []}, {"xi-api-key": []}]


def document(app: FastAPI) -> dict[str, Any]:
    """Of all endpoints of `app`. A router that answers in another form declares its own 400, whose
    content stands for all refusals of that operation; middlewares answer in the form of OpenAI's.
    """
    if app.openapi_schema:
        return app.openapi_schema
    schema = FastAPI.openapi(app)
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in _UNUSED:
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    components["responses"] = {
        status: {"description": meaning, "content": _OPENAI} for status, meaning in REFUSALS.items()
    }
    components["securitySchemes"] = _KEYS
    schema["security"] = _OPTIONAL_KEY
    for operations in schema["paths"].values():
        for operation in operations.values():
            _complete(operation["responses"])
    return schema


def _complete(responses: dict[str, Any]) -> None:
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    own = responses.get("400", {}).get("content")
    for status, meaning in REFUSALS.items():
        if own is None:
            responses.setdefault(status, {"$ref": f"#/components/responses/{status}"})
        else:
            responses.setdefault(status, {"description": meaning})["content"] = _either(own)


def _either(own: dict[str, Any]) -> dict[str, Any]:
    """In the form of the API or of the middlewares."""
    return {**_OPENAI, **{kind: {"schema": {"anyOf": [one.get("schema", {}), _SCHEMA]}} for kind, one in own.items()}}


def methods_of(app: FastAPI, path: str) -> list[str]:
    """In capitals, those that the document has for `path`; a route knows only its own."""
    found = {
        method.upper()
        for template, operations in document(app)["paths"].items()
        if compile_path(template)[0].fullmatch(path)
        for method in operations
    }
    return sorted(found)
