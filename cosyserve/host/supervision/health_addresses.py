"""Where the processes of one machine serve health and metrics without TLS, each on a port of its
own.
"""

from collections.abc import Mapping

from cosyserve.errors import SettingsError

NAME = "HEALTH_LISTEN"


def health_addresses(counts: Mapping[str, int], environ: Mapping[str, str]) -> dict[str, list[str]]:
    """HEALTH_LISTEN of each replica, for the services that set it. counts: replicas of all.

    The first replica has the address that is set, each further one the port that follows; port 0 is
    a free one for each. A malformed address is left to the service, which names it. Raises
    SettingsError for a port above 65535 and one that two replicas would have.
    """
    addresses, owners = dict[str, list[str]](), dict[int, str]()
    for service, count in counts.items():
        variable = f"COSYSERVE_{service.upper()}_{NAME}"
        host, _, first = environ.get(variable, "").rpartition(":")
        if not host or not first.isdecimal():
            continue
        ports = [int(first) + replica * (first != "0") for replica in range(count)]
        addresses[service] = [f"{host}:{port}" for port in ports]
        for replica, port in enumerate(filter(None, ports)):
            owner = f"{service}.{replica}"
            if port > 65535:
                raise SettingsError(f"{variable}: {owner} would have port {port}; allowed are 1 to 65535")
            if port in owners:
                raise SettingsError(
                    f"{variable}: {owner} would have port {port}, which {owners[port]} has; leave room for the "
                    f"{count} replicas of {service}"
                )
            owners[port] = owner
    return addresses


def ports_of(addresses: Mapping[str, list[str]]) -> dict[int, str]:
    """The ports of these addresses, and what has each."""
    return {
        int(address.rpartition(":")[2]): f"{NAME} of {service}.{replica}"
        for service, places in addresses.items()
        for replica, address in enumerate(places)
        if not address.endswith(":0")
    }
