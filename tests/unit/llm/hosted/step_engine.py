"""The engine of the fake libraries: a converted model, loaded by transformers, whose thread steps
all requests.

The model is the stock Qwen2 of the conversion, with no bias in its head. It uses no code of
services.llm.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Logits = torch.Tensor


@dataclass(eq=False)
class Request:
    """inputs: ids, or embeddings [n, hidden]. adjust: changes a row of logits [rows] in place, or
    returns another. deliver: receives each id and whether it is the last; an exception ends the
    request. Both are called on the engine's thread."""

    inputs: list[int] | torch.Tensor
    adjust: Callable[[Logits], Logits | None]
    most: int
    stops: frozenset[int]
    deliver: Callable[[int | Exception, bool], None]
    generated: list[int] = field(default_factory=list)
    computed: int = 0
    cache: Any = None
    aborted: bool = False


class StepEngine:
    """All methods may be called from any thread. steps: how many tokens have been computed. spoil:
    changes logits before that. logits: the head, on hidden states [rows, hidden]. part: so many
    inputs of a prompt are computed in a step at most; behind a part a token is sampled too, and
    thrown away."""

    def __init__(self, directory: Path) -> None:
        from transformers import Qwen2ForCausalLM

        self.model = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.logits: Callable[[torch.Tensor], torch.Tensor] = self.model.lm_head
        self.part, self.steps, self.aborts, self.most_at_once = 1 << 30, 0, 0, 0
        self.spoil: Callable[[Logits], Logits] = lambda row: row
        self.hold = threading.Event()
        self.hold.set()
        self._requests: list[Request] = []
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @property
    def active(self) -> int:
        with self._changed:
            return len(self._requests)

    def submit(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self.most_at_once = max(self.most_at_once, len(self._requests))
            self._changed.notify()

    def abort(self, request: Request) -> None:
        self._drop(request)
        request.aborted = True
        self.aborts += 1

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._requests.clear()
            self._changed.notify()
        self.hold.set()
        self._thread.join()

    @torch.inference_mode()
    def _work(self) -> None:
        torch.set_num_threads(1)
        while True:
            with self._changed:
                while not self._requests and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                going = list(self._requests)
            self.hold.wait()
            for request in going:
                if not request.aborted:
                    self._step(request)

    def _step(self, request: Request) -> None:
        try:
            row = self._row(request)
            adjusted = request.adjust(row)
            token = int((row if adjusted is None else adjusted).argmax())
        except Exception as error:
            self._drop(request)
            request.deliver(error, True)
            return
        self.steps += 1
        if request.computed < len(request.inputs):
            return
        request.generated.append(token)
        last = token in request.stops or len(request.generated) >= request.most
        if last:
            self._drop(request)
        request.deliver(token, last)

    def _row(self, request: Request) -> Logits:
        """Logits behind the next step's inputs."""
        new = (
            request.inputs[request.computed : request.computed + self.part]
            if not request.generated
            else request.generated[-1:]
        )
        request.computed += 0 if request.generated else len(new)
        given = {"inputs_embeds": new[None]} if isinstance(new, torch.Tensor) else {"input_ids": torch.tensor([new])}
        out = self.model.model(**given, past_key_values=request.cache, use_cache=True)
        request.cache = out.past_key_values
        return self.spoil(self.logits(out.last_hidden_state[0, -1:])[0].clone())

    def _drop(self, request: Request) -> None:
        with self._changed:
            if request in self._requests:
                self._requests.remove(request)
