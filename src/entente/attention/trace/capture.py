"""What a model computes, seen: modules by hooks, and what happens between them (Q K^T before the scale, the tanh of the
additive score, weights times values) by a `TorchFunctionMode`.

Nothing is computed again, and nothing stays in the model. What is asked for and was not seen is an error.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn
from torch.overrides import TorchFunctionMode


class Call(NamedTuple):
    """Of a module."""

    inputs: tuple[Any, ...]
    output: Any


class Operation(NamedTuple):
    """Of torch, by the module at `path` itself."""

    path: str
    name: str
    inputs: tuple[Any, ...]
    output: Any


class Seen(TorchFunctionMode):
    """Every call of the watched modules, and the operations inside one call of the attention (`call`, counted from 0: a
    recurrent decoder calls its attention once a step)."""

    def __init__(self, attention: str, call: int) -> None:
        super().__init__()
        self.attention, self.call = attention, call
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        self._operations: list[Operation] = []
        self._inside: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self._inside and len(self._calls[self.attention]) == self.call and self._inside[0] == self.attention:
            name = getattr(func, "__name__", "").strip("_")  # of an operator too: __matmul__
            self._operations.append(Operation(self._inside[-1], name, args, output))
        return output

    def enter(self, path: str) -> Callable[..., None]:
        return lambda module, inputs: self._inside.append(path)

    def leave(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            self._inside.pop()
            self._calls[path].append(Call(inputs, output))

        return hook

    def calls(self, path: str) -> list[Call]:
        if not self._calls[path]:
            raise RuntimeError(f"{path} was not seen: the pass did not call it, or it is compiled")
        return self._calls[path]

    def module(self, path: str) -> Call:
        """The call of a module that is part of the attention's call, or its only one."""
        calls = self.calls(path)
        if len(calls) != 1 and len(calls) <= self.call:
            raise RuntimeError(f"{path} was seen {len(calls)} times, and the attention is wanted at its call {self.call + 1}")
        return calls[self.call if len(calls) > 1 else 0]

    def operations(self, path: str, name: str) -> list[Operation]:
        return [operation for operation in self._operations if (operation.path, operation.name) == (path, name)]

    def operation(self, path: str, name: str, which: int = 0) -> Operation:
        found = self.operations(path, name)
        if not -len(found) <= which < len(found):
            raise RuntimeError(f"{name} was not seen in {path}: it computes in another way than is described here")
        return found[which]


@contextmanager
def watching(model: nn.Module, paths: Sequence[str], seen: Seen) -> Iterator[None]:
    handles: list[Any] = []
    try:
        for path, module in model.named_modules(remove_duplicate=False):
            if any(path == wanted or path.startswith(f"{wanted}.") for wanted in paths):
                handles.append(module.register_forward_pre_hook(seen.enter(path)))
                handles.append(module.register_forward_hook(seen.leave(path)))
        with seen:
            yield
    finally:
        for handle in handles:
            handle.remove()
