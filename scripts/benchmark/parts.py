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

# Linear layers use plain matrix products, even inside attention; attention scores and weighted sums use batched products.
PRODUCT = re.compile(r"::(mm|addmm|_addmm_activation|addmv|mv|linear|mkldnn_linear|_scaled_mm)_?$")
LOSS = re.compile(r"log_softmax|LogSoftmax|nll_loss|NllLoss|[Cc]ross_?[Ee]ntropy|kl_div")
ATTENTION = re.compile(r"::(bmm|baddbmm)_?$|scaled_dot_product|[Aa]ttention|::_?softmax|^Softmax|masked_fill|MaskedFill")
# The rules are tried in order on an operator's name, then on the names of the events around it, nearest first. If no rule fits,
# a backward operator belongs to the part of the forward operator whose gradient it computes.
RULES = [
    (re.compile(r"_fused_adam|_foreach_|linalg_vector_norm|clip_grad"), "optimiser"),
    (PRODUCT, "products"),
    (ATTENTION, "attention"),
    (re.compile(r"[Dd]ropout|bernoulli"), "dropout"),
]
BACKWARD = "autograd::engine::evaluate_function: "
RECORDED_MODULES = re.compile(r"Attention|Dropout")  # classes of modules whose forward pass is recorded as an event


class Profile:
    """A context manager that profiles the code in its `with` block."""

    def __init__(self, device: str, model: nn.Module) -> None:
        self._on_gpu = device == "cuda"
        self._running: list[record_function] = []
        self._hooks: list[Any] = []
        for module in model.modules():
            if RECORDED_MODULES.search(type(module).__name__):
                self._hooks += [module.register_forward_pre_hook(self._begin), module.register_forward_hook(self._end)]
        self._profile = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] * self._on_gpu)], acc_events=True)

    def __enter__(self) -> "Profile":
        self._profile.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._profile.__exit__(*exception)
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        self._running.append(record_function(f"benchmark: {type(module).__name__}"))
        self._running[-1].__enter__()

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._running.pop().__exit__(None, None, None)

    def parts(self, seconds: float) -> dict[str, float]:
        """Returns the time of each part in seconds. `seconds` is the measured time of all profiled code."""
        times = dict.fromkeys(PARTS, 0.0)
        chains = [_chain(event) for event in self._profile.events() or []]
        # A backward function has the sequence number of the operator whose gradient it computes.
        forward = {chain[0].sequence_nr: part for chain in chains if not _gradients(chain) and (part := _part(chain))}
        for chain in chains:
            event = chain[0]
            if event.name == BATCH_EVENT:
                times["data"] += event.cpu_time_total / 1e6
            elif event.name.startswith("aten::") and not any(parent.name == BATCH_EVENT for parent in chain):
                part = _part(chain) or next((forward.get(number) for number in _gradients(chain)), None)
                time = event.self_device_time_total if self._on_gpu else event.self_cpu_time_total
                times[part or "norms and elementwise"] += time / 1e6
        times["other"] = max(0.0, seconds - sum(times.values()))
        return times


def _chain(event: Any) -> list[Any]:
    """Returns an event and the events around it, nearest first."""
    return [event, *_chain(event.cpu_parent)] if event is not None else []


def _gradients(chain: list[Any]) -> list[int]:
    """Returns the sequence numbers of the backward functions in a chain of events."""
    return [event.sequence_nr for event in chain if event.name.startswith(BACKWARD)]


def _part(chain: list[Any]) -> str | None:
    names = [event.name.removeprefix(BACKWARD) for event in chain]
    if not PRODUCT.search(names[0]) and any(LOSS.search(name) for name in names):
        return "softmax and loss"
    return next((part for name in names for pattern, part in RULES if pattern.search(name)), None)


def synchronise(device: str) -> None:
    """Waits until the GPU has finished its work. Does nothing on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()
