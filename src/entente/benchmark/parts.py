"""Where the time of a training step goes, by the operators that torch's profiler sees. Torch only: the peers' scripts use it.

On the CPU a part's time is that of the thread that trains, in the part's operators; the other threads help it with these same
operators. On a GPU it is the time of their kernels. Whatever is left of the clock, Python above all, is `other`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

READING = "benchmark: data"
PARTS = ("products", "attention", "softmax and loss", "dropout", "norms and elementwise", "optimiser", "data", "other")
OTHER = PARTS[-1]

# Linear layers are products of matrices, wherever they are made; attention's are batched.
PRODUCT = re.compile(r"::(mm|addmm|_addmm_activation|addmv|mv|linear|mkldnn_linear|_scaled_mm)_?$")
LOSS = re.compile(r"log_softmax|LogSoftmax|nll_loss|NllLoss|[Cc]ross_?[Ee]ntropy|kl_div")
# Of an operator, or of the nearest one around it, or of the autograd function it belongs to; the first that fits.
RULES = [
    (re.compile(r"_fused_adam|_foreach_|linalg_vector_norm|clip_grad"), "optimiser"),
    (PRODUCT, "products"),
    (
        re.compile(r"::(bmm|baddbmm)_?$|scaled_dot_product|[Aa]ttention|::_?softmax|^Softmax|masked_fill|MaskedFill"),
        "attention",
    ),
    (re.compile(r"[Dd]ropout|bernoulli"), "dropout"),
]
BACKWARD = "autograd::engine::evaluate_function: "


MARKED = re.compile(r"Attention|Dropout")  # classes of modules that are told apart whatever operators they are made of


class Profile:
    """What happens inside it is profiled."""

    def __init__(self, device: str, model: nn.Module) -> None:
        self._on_gpu = device == "cuda"
        self._model = model
        self._marks: list[Any] = []  # what to take away again
        self._profile = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] * self._on_gpu)], acc_events=True)

    def __enter__(self) -> "Profile":
        for module in self._model.modules():
            if MARKED.search(type(module).__name__):
                self._mark(module, f"benchmark: {type(module).__name__}")
        self._profile.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._profile.__exit__(*exception)
        for mark in self._marks:
            mark.remove()

    def _mark(self, module: nn.Module, name: str) -> None:
        """The profile knows when its forward pass begins and ends."""
        inside: list[record_function] = []

        def begin(*_: Any) -> None:
            inside.append(record_function(name))
            inside[-1].__enter__()

        def end(*_: Any) -> None:
            inside.pop().__exit__(None, None, None)

        self._marks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]

    def parts(self, seconds: float) -> dict[str, float]:
        """Seconds of each part; `seconds`: of all that was profiled."""
        events = list(self._profile.events() or [])
        found = dict.fromkeys(PARTS, 0.0)
        # A backward function has the sequence number of the operator whose gradient it computes.
        forward = {
            e.sequence_nr: part for e in events if e.sequence_nr >= 0 and not _around(e, BACKWARD) and (part := _part(e))
        }
        for event in events:
            if event.name == READING:
                found["data"] += event.cpu_time_total / 1e6
            elif event.name.startswith("aten::") and not _around(event, READING):
                own = event.self_device_time_total if self._on_gpu else event.self_cpu_time_total
                backward = _around(event, BACKWARD)
                part = _part(event) or (forward.get(backward.sequence_nr) if backward else None)
                found[part or "norms and elementwise"] += own / 1e6
        found[OTHER] = max(0.0, seconds - sum(found.values()))
        return found


@contextmanager
def reading() -> Iterator[None]:
    """The making of a batch, which is no operator."""
    with record_function(READING):
        yield


def _around(event: Any, name: str) -> Any:
    """The event itself or the nearest one around it whose name begins so; None where there is none."""
    while event is not None and not event.name.startswith(name):
        event = event.cpu_parent
    return event


def _part(event: Any) -> str | None:
    around = []
    while event is not None:
        around.append(event.name.removeprefix(BACKWARD))
        event = event.cpu_parent
    if not PRODUCT.search(around[0]) and any(LOSS.search(name) for name in around):
        return "softmax and loss"
    return next((part for name in around for pattern, part in RULES if pattern.search(name)), None)


def synchronise(device: str) -> None:
    """Waits until a GPU has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()
