"""What the graphs of a block have in common: the state that goes in, and what the block adds to it.

Keys and values of all layers are one tensor, [2 * layers, rows, heads, time, head width], the keys
of a layer in front of its values. The inputs of all convolutions are side by side, [rows, reach,
channels of all]. In front of a past that is shorter than the tensor are keys that the mask leaves
out; behind a block that is shorter than its tensor is padding, and `tail` says for each row which
columns are its last ones.
"""

from tools.model.graphs.layers import LayerGraph


class KeptKeys:
    """The state of one stack of layers with attention. past: name of the input. The keys and
    values that the block adds become an output of that name behind `new_`.
    """

    def __init__(self, graph: LayerGraph, past: str) -> None:
        self._graph, self._past, self._new = graph, past, list[str]()

    def extended(self, keys: str, values: str, name: str) -> tuple[str, str]:
        """Those of the block behind those kept, [rows, heads, past + time, head width], in the type
        of the products.
        """
        known = []
        for part, new in (("keys", keys), ("values", values)):
            graph, at = self._graph, len(self._new)
            old = graph.slice(self._past, at, at + 1, 0, f"{name}.of_past_{part}")
            old = graph.node("Squeeze", [old, graph.integers(0)], f"{name}.past_{part}")
            known.append(graph.node("Concat", [graph.to_products(old), new], f"{name}.all_{part}", axis=2))
            full = graph.to_full(new)
            self._new.append(graph.node("Unsqueeze", [full, graph.integers(0)], f"{name}.new_{part}"))
        return known[0], known[1]

    def output(self, rows: str, heads: int, time: str, width: int) -> None:
        """Hand out what the block adds; call once, behind all layers."""
        joined = self._graph.node("Concat", self._new, f"{self._past}.added", axis=0)
        self._graph.output(f"new_{self._past}", joined, (len(self._new), rows, heads, time, width))


class KeptColumns:
    """The state of convolutions of one reach. columns: name of the input, whose channels are those
    of all convolutions in the order of their calls; the output has the same name behind `new_`.
    """

    def __init__(self, graph: LayerGraph, columns: str, tail: str) -> None:
        self._graph, self._columns, self._tail, self._last = graph, columns, tail, list[str]()
        self._begin = 0

    def in_front(self, x: str, channels: int, name: str) -> str:
        """x [rows, time, channels] behind what is kept of it, [rows, reach + time, channels]."""
        graph, begin = self._graph, self._begin
        self._begin += channels
        before = graph.slice(self._columns, begin, self._begin, 2, f"{name}.before")
        joined = graph.node("Concat", [before, x], f"{name}.joined", axis=1)
        # A product with ones and zeros, since rows end at different columns.
        self._last.append(graph.node("MatMul", [self._tail, joined], f"{name}.last"))
        return joined

    def output(self, rows: str, reach: int) -> None:
        """Hand out the columns that the next block needs; call once, behind all layers."""
        joined = self._last[0]
        if len(self._last) > 1:
            joined = self._graph.node("Concat", self._last, f"{self._columns}.added", axis=2)
        self._graph.output(f"new_{self._columns}", joined, (rows, reach, self._begin))
