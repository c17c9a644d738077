"""The channel for a target: to one server, to several, or to all servers behind a name."""

import grpc

from cosyserve.errors import SettingsError
from cosyserve.rpc.names.target import named_target
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.rpc.transport import channel_options
from cosyserve.tls.settings import ClientTls


def channel_to(
    target: str,
    tls: ClientTls | None,
    max_message_bytes: int | None = None,
    *,
    own_connection: bool = False,
    connections: int = 1,
) -> grpc.aio.Channel:
    """A channel to a server; for a name as dns:///name:port, to all servers behind it; for several
    targets, comma separated, to all of them. connections: to each address, over which the calls are
    spread: a server of several processes has each connection at one of them. Options:
    `channel_options`. Raises SettingsError for certificate files that cannot be used, for an empty
    target among several, and for a dns: target of another form.
    """
    targets = [each.strip() for each in target.split(",")]
    if len(targets) > 1 and "" in targets:
        raise SettingsError(f"{target!r} has an empty target; a comma stands between two targets")
    try:
        named = [each for each in targets if each.startswith("dns:") and named_target(each) is not None]
    except ValueError as error:
        raise SettingsError(str(error)) from error
    targets *= connections
    if named or len(targets) > 1:
        # The DNS client takes a tenth of a second to import.
        from cosyserve.client.spread_channel import SpreadChannel

        return SpreadChannel(targets, tls, max_message_bytes)
    return open_channel(target, channel_options(max_message_bytes, own_connection=own_connection), tls)
