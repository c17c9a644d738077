"""Lets only those callers in whose client certificate has one of the configured names."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc

from cosyserve.errors import PermissionDenied
from cosyserve.rpc.interceptors import Context, abort, kind_of, respond
from cosyserve.tls.peer_names import names_of_grpc, require_allowed


class AllowedCallers(grpc.aio.ServerInterceptor):
    """The outermost interceptor: a caller without such a name gets PERMISSION_DENIED from every
    method, also of health and reflection, before its first message is read.

    Callers on a Unix socket have no certificate; the permissions of its folder have let them in.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        kind = kind_of(handler)
        return getattr(grpc, f"{kind}_rpc_method_handler")(
            self._checked(getattr(handler, kind)), handler.request_deserializer, handler.response_serializer
        )

    def _checked(self, behaviour: Callable[[Any, Context], Any]) -> Callable[[Any, Context], Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            if not context.peer().startswith("unix:"):
                try:
                    require_allowed(names_of_grpc(context.auth_context()), self._names)
                except PermissionDenied as error:
                    await abort(context, error)
            return await respond(behaviour(request, context), context)

        return call
