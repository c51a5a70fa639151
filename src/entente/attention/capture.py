"""What named modules take in and give out during one teacher-forced pass, captured by hooks.

Nothing is computed again, no random number is drawn, and nothing stays in the model: no flag, no attribute, no hook.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from entente.models import Seq2Seq
from entente.models.seq2seq import evaluating


class Operation(NamedTuple):
    """One call of a torch function or operator, by its name."""

    name: str
    inputs: tuple[Any, ...]
    output: Any


class Call(NamedTuple):
    """One call of a module. operations: torch functions that the module called itself, if these were asked for; those called by
    a captured submodule belong to the submodule."""

    module: Any
    inputs: tuple[Any, ...]
    output: Any
    operations: list[Operation]


class _Operations(TorchFunctionMode):
    """Appends each torch operation to the innermost list of `running`."""

    def __init__(self, running: list[list[Operation]]) -> None:
        super().__init__()
        self._running = running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self._running:
            self._running[-1].append(Operation(getattr(func, "__name__", "").strip("_"), args, output))  # __matmul__ too
        return output


@contextmanager
def observing(model: Seq2Seq) -> Iterator[tuple[Seq2Seq, torch.device]]:
    """Evaluation mode, no gradients and full precision inside. Yields the model and its device; of a compiled model the plain
    one, since a compiled module does not call hooks."""
    plain: Seq2Seq = getattr(model, "_orig_mod", model)
    device = plain.output.weight.device
    # Autocast would cache weights cast here, without their gradients, for the training step around this.
    with evaluating(plain), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield plain, device


def capture(
    model: Seq2Seq, src: Tensor, tgt: Tensor, wanted: Callable[[str, nn.Module], bool], operations: bool = False
) -> dict[str, list[Call]]:
    """src (B, S), tgt (B, T) as the decoder reads it -> the calls, in order, of each module that `wanted(path, module)` picks,
    by path. A recurrent decoder calls its attention once per step. RuntimeError if a wanted module was not called."""
    calls: dict[str, list[Call]] = {}
    running: list[list[Operation]] = []  # the operations of each module in progress, the innermost last
    with ExitStack() as stack:
        plain, device = stack.enter_context(observing(model))
        for path, module in plain.named_modules():
            if wanted(path, module):
                seen = calls[path] = []

                def leave(module: nn.Module, inputs: Any, output: Any, seen: list[Call] = seen) -> None:
                    seen.append(Call(module, inputs, output, running.pop()))

                stack.enter_context(module.register_forward_pre_hook(lambda module, inputs: running.append([])))
                stack.enter_context(module.register_forward_hook(leave))
        if operations:
            stack.enter_context(_Operations(running))
        plain.decode(tgt.to(device), plain.encode(src.to(device)))
    if silent := [path for path, seen in calls.items() if not seen]:
        raise RuntimeError(f"{', '.join(silent)} was not seen: the pass did not call it, or it is compiled")
    return calls
