"""What named modules take in and give out during one teacher-forced pass, captured by hooks.

The pass runs in evaluation mode, without gradients and in full precision. Nothing is computed again, no random number is drawn,
and nothing stays in the model: no flag, no attribute, no hook.
"""

from collections.abc import Callable
from contextlib import ExitStack
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
    """Appends each torch operation to the innermost list of `open`."""

    def __init__(self, open: list[list[Operation]]) -> None:
        super().__init__()
        self._open = open

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self._open:
            self._open[-1].append(Operation(getattr(func, "__name__", "").strip("_"), args, output))  # __matmul__ too
        return output


def capture(
    model: Seq2Seq, src: Tensor, tgt: Tensor, wanted: Callable[[str, nn.Module], bool], operations: bool = False
) -> dict[str, list[Call]]:
    """src (B, S), tgt (B, T) as the decoder reads it -> the calls, in order, of each module that `wanted(path, module)` picks,
    by path. A recurrent decoder calls its attention once per step. RuntimeError if a wanted module was not called."""
    plain: Seq2Seq = getattr(model, "_orig_mod", model)  # a compiled module does not call hooks
    device = plain.output.weight.device
    calls: dict[str, list[Call]] = {}
    open_: list[list[Operation]] = []

    def watch(path: str, module: nn.Module, stack: ExitStack) -> None:
        calls[path] = []

        def leave(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            calls[path].append(Call(module, inputs, output, open_.pop()))

        stack.callback(module.register_forward_pre_hook(lambda module, inputs: open_.append([])).remove)
        stack.callback(module.register_forward_hook(leave).remove)

    with ExitStack() as stack:
        stack.enter_context(evaluating(plain))
        stack.enter_context(torch.no_grad())
        # Autocast would cache weights cast here, without their gradients, for the training step around this.
        stack.enter_context(torch.autocast(device.type, enabled=False))
        for path, module in plain.named_modules():
            if wanted(path, module):
                watch(path, module, stack)
        if operations:
            stack.enter_context(_Operations(open_))
        plain.decode(tgt.to(device), plain.encode(src.to(device)))
    if silent := [path for path, seen in calls.items() if not seen]:
        raise RuntimeError(f"{', '.join(silent)} was not seen: the pass did not call it, or it is compiled")
    return calls
