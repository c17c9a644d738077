"""A queue that serves hosts in rotation, the connections of a host in rotation, and the items of a
connection in order of arrival.
"""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")
_Connections = dict[str, deque[Item]]


class FairQueue(Generic[Item]):
    """A host or connection with many items cannot keep the items of others waiting."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Connections[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, connection: str, item: Item) -> None:
        """Append `item` to those of the same connection."""
        self._hosts.setdefault(host, {}).setdefault(connection, deque()).append(item)
        self._count += 1

    def next(self) -> tuple[str, Item]:
        """Remove and return the next item, with its host. Raises IndexError if there is none."""
        if not self._hosts:
            raise IndexError("the queue is empty")
        host = next(iter(self._hosts))
        connections = self._hosts.pop(host)
        connection = next(iter(connections))
        items = connections.pop(connection)
        item = items.popleft()
        self._count -= 1
        # The remaining items go to the end of both rotations.
        if items:
            connections[connection] = items
        if connections:
            self._hosts[host] = connections
        return host, item

    def newest_of_the_most(self) -> Item:
        """Remove and return the last item of the connection with the most items, of the host with
        the most. Raises IndexError if there is none.
        """
        if not self._hosts:
            raise IndexError("the queue is empty")
        host = max(self._hosts, key=lambda name: sum(map(len, self._hosts[name].values())))
        connections = self._hosts[host]
        connection = max(connections, key=lambda name: len(connections[name]))
        item = connections[connection][-1]
        self.remove(host, connection, item)
        return item

    def remove(self, host: str, connection: str, item: Item) -> None:
        """Remove `item` if it is still queued."""
        items = self._hosts.get(host, {}).get(connection, deque())
        if item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del self._hosts[host][connection]
        if not self._hosts[host]:
            del self._hosts[host]
