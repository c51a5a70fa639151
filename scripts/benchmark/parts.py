"""How the time of a training step divides, by the operators that torch's profiler records. Torch only, because other programs
import this.

On the CPU a part's time is what the training thread spends in the part's operators; other threads help it with the same ones.
On a GPU it is the time of their kernels. What is left of the measured time, mostly Python, is `other`.
"""

import re
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

READING = "TrainingBatches.batch"  # the name under which a batch is made; the package records it
PARTS = ("products", "attention", "softmax and loss", "dropout", "norms and elementwise", "optimiser", "data", "other")
OTHER = PARTS[-1]

# Linear layers are products of matrices, wherever they are made; attention's are batched.
PRODUCT = re.compile(r"::(mm|addmm|_addmm_activation|addmv|mv|linear|mkldnn_linear|_scaled_mm)_?$")
LOSS = re.compile(r"log_softmax|LogSoftmax|nll_loss|NllLoss|[Cc]ross_?[Ee]ntropy|kl_div")
# The first that fits an operator, or else the nearest event around it, or else the autograd function it belongs to.
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
MARKED = re.compile(r"Attention|Dropout")  # classes of modules whose forward pass is recorded by name


class Profile:
    """Profiles what runs inside it."""

    def __init__(self, device: str, model: nn.Module) -> None:
        self._on_gpu = device == "cuda"
        self._model = model
        self._hooks: list[Any] = []
        self._profile = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] * self._on_gpu)], acc_events=True)

    def __enter__(self) -> "Profile":
        for module in self._model.modules():
            if MARKED.search(type(module).__name__):
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
        """Seconds per part. seconds: of everything that was profiled."""
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


def _around(event: Any, name: str) -> Any:
    """The event itself or the nearest one around it whose name starts with `name`, or None."""
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
    """Waits until a GPU has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()
