"""The speech-token model and the rules of streamed text, written once more: from the compatibility
specifications alone, in numpy, float64, a sentence in one pass. It shares no code with the service.

    [start] [system part] ([5 text] [15 prompt speech])... ([5 text] tokens FILL)...
        [rest of the text] [task] tokens

Source: compatibility specification of CosyVoice2, sections 3.1, 3.3 and 3.4, of CosyVoice3,
sections 3.1, 3.5 and 11; in the form that is served, which feeds nothing twice and waits for text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

Rows = NDArray[np.float64]
SOUNDS = 6561


@dataclass(frozen=True)
class Ids:
    """Special ids of the head. mark: text id behind the system part; None: there is no such
    part.
    """

    end: int
    fill: int
    mark: int | None


TWO, THREE = Ids(end=6561, fill=6563, mark=None), Ids(end=6562, fill=6564, mark=259)


class Reader:
    """A model directory read by itself."""

    def __init__(self, bundle: Path, ids: Ids) -> None:
        stored = torch.load(bundle / "llm.pt", weights_only=True)
        self.ids, self._weights = ids, {name: tensor.double().numpy() for name, tensor in stored.items()}
        sizes = json.loads((bundle / "CosyVoice-BlankEN" / "config.json").read_text())
        self._layers, self._heads = sizes["num_hidden_layers"], sizes["num_attention_heads"]
        self._kv_heads, self._theta = sizes["num_key_value_heads"], sizes["rope_theta"]
        self._epsilon = sizes["rms_norm_eps"]

    def decisions(
        self,
        prompt_text: list[int],
        prompt_speech: list[int],
        text: list[int],
        made: list[int],
        raised: Mapping[int, float],
    ) -> tuple[list[int], float]:
        """The best decision behind those that were made before it, for each of `made`, fills and
        the end included; and the smallest gap between a best and a second best score. text: has
        all arrived. raised: added to the scores of ids.
        """
        left, fed, points = list(made), list[Rows](), list[tuple[int, int] | None]()
        system = prompt_text.index(self.ids.mark) + 1 if self.ids.mark is not None else 0
        waiting, speech = prompt_text[system:] + text, list(prompt_speech)
        fed += [self._special(0), *self._text(prompt_text[:system])]
        while speech and len(waiting) >= 5:
            fed += [*self._text(waiting[:5]), *self._speech(speech[:15])]
            waiting, speech = waiting[5:], speech[15:]
        fill_at, has_text = 15 - len(prompt_speech) % 15, len(prompt_speech) > 0
        while left and not speech and (has_text or len(waiting) >= 5):
            if not has_text:
                fed, waiting, has_text = [*fed, *self._text(waiting[:5])], waiting[5:], True
            points.append(None if len(points) == fill_at else (len(fed) - 1, self.ids.fill))
            if (chosen := left.pop(0)) < SOUNDS:
                fed += self._speech([chosen])
            else:
                fill_at, has_text = len(points) + 15, False
        fed += [*self._text(waiting), self._special(1), *self._speech(speech)]
        for chosen in left:
            points.append((len(fed) - 1, self.ids.end))
            fed += self._speech([chosen])
        return self._best(fed, points, raised)

    def _best(
        self, fed: list[Rows], points: list[tuple[int, int] | None], raised: Mapping[int, float]
    ) -> tuple[list[int], float]:
        """points: of each decision the last position before it and the one special id that has a
        meaning then; None: the decision is a fill whatever the scores are.
        """
        scores = self._scores(np.stack(fed), [point[0] for point in points if point])
        for row, value in raised.items():
            scores[:, row] += value
        best, gap, rows = list[int](), np.inf, iter(scores)
        for point in points:
            if point is None:
                best.append(self.ids.fill)
                continue
            row = next(rows)
            choices = np.array([*range(SOUNDS), point[1]])
            second, first = np.argsort(row[choices], kind="stable")[-2:]
            gap = min(gap, float(row[choices[first]] - row[choices[second]]))
            best.append(int(choices[first]))
        return best, gap

    def _special(self, place: int) -> Rows:
        """Row 0 starts a sequence, row 1 stands before the speech."""
        if self.ids.mark is None:
            return self._weights["llm_embedding.weight"][place]
        return self._weights["speech_embedding.weight"][(6561, 6563)[place]]

    def _text(self, ids: Iterable[int]) -> list[Rows]:
        return [self._weights["llm.model.model.embed_tokens.weight"][one] for one in ids]

    def _speech(self, ids: Iterable[int]) -> list[Rows]:
        return [self._weights["speech_embedding.weight"][one] for one in ids]

    def _scores(self, x: Rows, places: list[int]) -> Rows:
        """Logits [places, ids] after some of these positions [n, hidden]."""
        for layer in range(self._layers):
            at = f"llm.model.model.layers.{layer}"
            normal = self._norm(x, f"{at}.input_layernorm.weight")
            q, k, v = (self._projected(normal, f"{at}.self_attn.{name}_proj") for name in "qkv")
            x = x + self._attended(q, k, v) @ self._weights[f"{at}.self_attn.o_proj.weight"].T
            normal = self._norm(x, f"{at}.post_attention_layernorm.weight")
            gate, up = (normal @ self._weights[f"{at}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1.0 + np.exp(-gate)) * up) @ self._weights[f"{at}.mlp.down_proj.weight"].T
        last = self._norm(x[places], "llm.model.model.norm.weight")
        logits: Rows = last @ self._weights["llm_decoder.weight"].T + self._weights.get("llm_decoder.bias", 0.0)
        return logits

    def _norm(self, x: Rows, name: str) -> Rows:
        normal: Rows = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._epsilon) * self._weights[name]
        return normal

    def _projected(self, x: Rows, name: str) -> Rows:
        projected: Rows = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return projected

    def _attended(self, q: Rows, k: Rows, v: Rows) -> Rows:
        """Causal attention of all heads [n, heads * width]; a key head serves heads in a row."""
        count, width = len(q), q.shape[1] // self._heads
        q = self._turned(q.reshape(count, self._heads, width))
        k = self._turned(k.reshape(count, self._kv_heads, width))
        v = v.reshape(count, self._kv_heads, width)
        heads = []
        for head in range(self._heads):
            own = head // (self._heads // self._kv_heads)
            scores = q[:, head] @ k[:, own].T / np.sqrt(width)
            scores[np.triu_indices(count, 1)] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(shares / shares.sum(axis=1, keepdims=True) @ v[:, own])
        return np.concatenate(heads, axis=1)

    def _turned(self, x: Rows) -> Rows:
        """Number i of a head turns with number i + width / 2."""
        half = x.shape[2] // 2
        angles = np.arange(len(x))[:, None] * self._theta ** (-np.arange(half) / half)
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
