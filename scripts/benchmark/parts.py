"""Divides the time of a training step into parts according to the operators in a torch profile. Imports only torch, because
other programs import this module in their own environments.

On the CPU, a part's time is the time that the training thread spends in the operators of that part, even if other threads help.
On a GPU, it is the time of the kernels that these operators launch. The rest of the measured time, mostly Python, is `other`.
"""

import re
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

BATCH_EVENT = "TrainingBatches.batch"  # the name of the profiler event that covers the making of a batch
PARTS = ("products", "attention", "softmax and loss", "dropout", "norms and elementwise", "optimiser", "data", "other")
OTHER = PARTS[-1]

# Linear layers use plain matrix products, even inside attention; attention scores and weighted sums use batched products.
PRODUCT = re.compile(r"::(mm|addmm|_addmm_activation|addmv|mv|linear|mkldnn_linear|_scaled_mm)_?$")
LOSS = re.compile(r"log_softmax|LogSoftmax|nll_loss|NllLoss|[Cc]ross_?[Ee]ntropy|kl_div")
# The rules are tried in order on an operator's name, then on the names of the events around it, nearest first. If no rule fits,
# a backward operator belongs to the part of the forward operator whose gradient it computes.
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
RECORDED_MODULES = re.compile(r"Attention|Dropout")  # classes of modules whose forward pass is recorded as an event


class Profile:
    """A context manager that profiles the code in its `with` block."""

    def __init__(self, device: str, model: nn.Module) -> None:
        self._on_gpu = device == "cuda"
        self._model = model
        self._hooks: list[Any] = []
        self._profile = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] * self._on_gpu)], acc_events=True)

    def __enter__(self) -> "Profile":
        for module in self._model.modules():
            if RECORDED_MODULES.search(type(module).__name__):
                self._record(module, f"benchmark: {type(module).__name__}")
        self._profile.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._profile.__exit__(*exception)
        for hook in self._hooks:
            hook.remove()

    def _record(self, module: nn.Module, name: str) -> None:
        inside: list[record_function] = []

        def begin(*_: Any) -> None:
            inside.append(record_function(name))
            inside[-1].__enter__()

        def end(*_: Any) -> None:
            inside.pop().__exit__(None, None, None)

        self._hooks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]

    def parts(self, seconds: float) -> dict[str, float]:
        """Returns the time of each part in seconds. `seconds` is the measured time of all profiled code."""
        events = list(self._profile.events() or [])
        found = dict.fromkeys(PARTS, 0.0)
        # A backward function has the sequence number of the operator whose gradient it computes.
        forward = {
            e.sequence_nr: part for e in events if e.sequence_nr >= 0 and not _enclosing(e, BACKWARD) and (part := _part(e))
        }
        for event in events:
            if event.name == BATCH_EVENT:
                found["data"] += event.cpu_time_total / 1e6
            elif event.name.startswith("aten::") and not _enclosing(event, BATCH_EVENT):
                own = event.self_device_time_total if self._on_gpu else event.self_cpu_time_total
                backward = _enclosing(event, BACKWARD)
                part = _part(event) or (forward.get(backward.sequence_nr) if backward else None)
                found[part or "norms and elementwise"] += own / 1e6
        found[OTHER] = max(0.0, seconds - sum(found.values()))
        return found


def _enclosing(event: Any, name: str) -> Any:
    """Returns `event` or the nearest event around it whose name begins with `name`, or None if there is no such event."""
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
    """Waits until the GPU has finished its work. Does nothing on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()
