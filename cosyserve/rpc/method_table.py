"""The methods of a service: refused while its engine is loading, then those of its servicers."""

from typing import Any

import grpc


class Handlers(grpc.GenericRpcHandler):
    """Method table that is filled when loading is complete; takes the place of the server in
    `add_..._to_server`.
    """

    def __init__(self) -> None:
        self._tables: list[grpc.GenericRpcHandler] = []
        self.loading = True

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        self._tables.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Generated code also calls this; the generic table is enough."""

    def has(self, details: grpc.HandlerCallDetails) -> bool:
        """Whether the service has this method; not while it loads."""
        return not self.loading and self.service(details) is not None

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if self.loading:
            return grpc.stream_stream_rpc_method_handler(_still_loading)
        return next((handler for table in self._tables if (handler := table.service(details)) is not None), None)


async def _still_loading(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "this service is still loading; wait until its health is SERVING")
