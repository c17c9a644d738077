"""The estimator of CosyVoice2's flow, a U-Net, as an ONNX graph (compatibility specification of
CosyVoice2, sections 4.5 and 4.8).
"""

import math

import numpy as np

from tools.model.graphs.velocity_graph import VelocityGraph


class EstimatorGraph(VelocityGraph):
    """config: `UnetConfig`."""

    @property
    def largest_inputs_needed(self) -> dict[str, str]:
        """The linear maps that multiply in 8 bits with precision fp8, each with the tensor whose
        largest magnitude it needs.
        """
        return {name: value for name, value in self.product_inputs.items() if ".attn1." in name or ".ff." in name}

    def _network(self) -> str:
        time = self._time()
        x = skip = self._level(self._side_by_side("x", "mu", "spks", "cond"), time, "down_blocks.0")
        x = self._end(x, "down_blocks.0.2")
        for at in range(self._config.middle):
            x = self._level(x, time, f"mid_blocks.{at}")
        x = self._level(self.node("Concat", [x, skip], "up_blocks.0.input", axis=2), time, "up_blocks.0")
        x = self._end(x, "up_blocks.0.2")
        x = self._real(self._block(x, "final_block"), "final_block.real")
        x = self.to_full(self._one_tap(self.to_products(x), "final_proj"))
        return self.node("Transpose", [self._real(x, "final_proj.real")], "velocity", perm=[0, 2, 1])

    def _time(self) -> str:
        """Mish of the time embedding, float32 [rows, 1, 4 * channels]."""
        into = self.tensors["time_mlp.linear_1.weight"].shape[1]
        # The same rounding as the torch path's, which multiplies in float32.
        rate = np.exp(np.arange(into // 2, dtype=np.float32) * np.float32(-(math.log(10000.0) / (into // 2 - 1))))
        embedding = self._time_embedding(rate, "time_mlp.linear_1", "time_mlp.linear_2", "time_mlp")
        return self.node("Unsqueeze", [self.mish(embedding, "time.mish"), self.integers(1)], "time")

    def _one_tap(self, x: str, name: str) -> str:
        return self.linear(x, self.tensors[f"{name}.weight"][:, :, 0], self.tensors[f"{name}.bias"], name)

    def _end(self, x: str, name: str) -> str:
        return self.layer(name, self.convolution(self._real(x, f"{name}.real"), name, before=2))

    def _block(self, x: str, name: str) -> str:
        """Causal block: real frames, convolution, norm, Mish, real frames."""
        x = self.convolution(self._real(x, f"{name}.real_in"), f"{name}.block.0", before=2)
        x = self.mish(self.norm(x, f"{name}.block.2"), f"{name}.mish")
        return self._real(x, f"{name}.out")

    def _level(self, x: str, time: str, name: str) -> str:
        x = self._resnet(x, time, f"{name}.0")
        for at in range(self._config.transformers):
            x = self._transformer(x, f"{name}.1.{at}")
        return x

    def _resnet(self, x: str, time: str, name: str) -> str:
        hidden = self.node(
            "Add", [self._block(x, f"{name}.block1"), self.full_linear(time, f"{name}.mlp.1")], f"{name}.timed"
        )
        hidden = self._block(hidden, f"{name}.block2")
        residual = self.to_full(self._one_tap(self.to_products(self._real(x, f"{name}.real")), f"{name}.res_conv"))
        return self.layer(name, self.node("Add", [hidden, residual], name))

    def _transformer(self, x: str, name: str) -> str:
        attended = self.to_full(self._attention(self.to_products(self.norm(x, f"{name}.norm1")), f"{name}.attn1"))
        x = self.node("Add", [x, attended], f"{name}.attended")
        fed = self.to_products(self.norm(x, f"{name}.norm3"))
        fed = self.gelu(self.named_linear(fed, f"{name}.ff.net.0.proj"), f"{name}.ff.gelu")
        fed = self.to_full(self.named_linear(fed, f"{name}.ff.net.2"))
        return self.layer(name, self.node("Add", [x, fed], name))

    def _attention(self, x: str, name: str) -> str:
        heads, width = self._config.estimator_heads, self._config.head_width
        matrix = np.concatenate([self.tensors[f"{name}.to_{part}.weight"] for part in "qkv"])
        joined = self.linear(x, matrix, None, f"{name}.to_qkv")
        queries, keys, values = self.split_heads(joined, heads, heads * width, f"{name}.qkv")
        keys = self.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
        queries = self.node("Mul", [queries, self.number(width**-0.5, "product")], f"{name}.queries")
        scores = self.node(
            "Add", [self.node("MatMul", [queries, keys], f"{name}.content"), self._bias], f"{name}.scores"
        )
        return self.named_linear(self.attend(scores, values, name), f"{name}.to_out.0")
