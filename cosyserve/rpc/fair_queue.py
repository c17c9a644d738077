"""A line in which hosts are served in rotation, the connections of a host too, and the items of a
connection in order of arrival.
"""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")
_Connections = dict[str, deque[Item]]


class FairQueue(Generic[Item]):
    """One host, or one connection among many of the same host, cannot keep the items of others
    waiting by adding many of its own.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _Connections[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, host: str, connection: str, item: Item) -> None:
        """Put `item` behind those of the same connection."""
        self._hosts.setdefault(host, {}).setdefault(connection, deque()).append(item)
        self._count += 1

    def next(self) -> tuple[str, Item]:
        """Take the item whose turn it is, with its host. Raises IndexError when there is none."""
        if not self._hosts:
            raise IndexError("the line is empty")
        host = next(iter(self._hosts))
        connections = self._hosts.pop(host)
        connection = next(iter(connections))
        items = connections.pop(connection)
        item = items.popleft()
        self._count -= 1
        # What is left goes to the end of both rotations.
        if items:
            connections[connection] = items
        if connections:
            self._hosts[host] = connections
        return host, item

    def newest_of_the_most(self) -> Item:
        """Take the last item of the connection with the most items, of the host with the most.
        Raises IndexError when there is none.
        """
        if not self._hosts:
            raise IndexError("the line is empty")
        host = max(self._hosts, key=lambda name: sum(map(len, self._hosts[name].values())))
        connections = self._hosts[host]
        connection = max(connections, key=lambda name: len(connections[name]))
        item = connections[connection][-1]
        self.remove(host, connection, item)
        return item

    def remove(self, host: str, connection: str, item: Item) -> None:
        """Take `item` out, if it is still there."""
        items = self._hosts.get(host, {}).get(connection, deque())
        if item not in items:
            return
        items.remove(item)
        self._count -= 1
        if not items:
            del self._hosts[host][connection]
        if not self._hosts[host]:
            del self._hosts[host]
