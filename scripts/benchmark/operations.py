"""Counts the floating point operations of a Transformer's matrix products by formula, and measures how fast this machine
computes such products: an upper bound on training speed.

A product (M, K) x (K, N) takes 2 M K N operations. In a training step, a linear layer needs three such products: the forward
pass (M, K) (K, N), the gradient of the input (M, N) (N, K), and the gradient of the weight (K, M) (M, N).
"""

from typing import Any

import torch
from torch.utils.benchmark import Timer

from benchmark.wire import Message

Product = tuple[int, int, int]  # M, K, N
Model = dict[str, Any]  # the section `model` of a configuration


def training_operations(model: Model, vocabulary: int, b: int, s: int, t: int, n: int) -> int:
    """Returns the number of operations in a training step: b sentences, s source and t target positions per sentence (padding
    included), and n target tokens in all sentences, since padding is not projected onto the vocabulary."""
    d, f = model["d_model"], model["d_ff"]
    encoder = b * s * (4 * d * d + 2 * d * f)
    decoder = b * t * (4 * d * d + 2 * d * f) + 2 * (b * t + b * s) * d * d
    attention = 2 * b * d * (s * s + t * t + t * s)  # products for the scores and for the weighted sums
    return 3 * 2 * (model["n_layers"] * (encoder + decoder + attention) + n * d * vocabulary)


def linear_layers(model: Model, vocabulary: int, rows: int) -> dict[Product, int]:
    """Returns how many linear layers of a Transformer compute a product of each size, for `rows` tokens. Each attention has
    four such layers, and each feed-forward network has two; the output projection is another."""
    d, f, layers = model["d_model"], model["d_ff"], model["n_layers"]
    return {(rows, d, d): 12 * layers, (rows, d, f): 4 * layers, (rows, d, vocabulary): 1}


def ceiling(spec: Message) -> Message:
    """Times the products of one layer of each size. `seconds` and `gflop` are sums over all layers."""
    rows = min(2048, spec["config"]["data"]["batch"]["max_tokens"])
    sizes = linear_layers(spec["config"]["model"], spec["vocabulary"], rows)
    dtype = getattr(torch, spec["dtype"])
    seconds = sum(count * seconds_of(size, dtype, spec["device"]) for size, count in sizes.items())
    return {"seconds": seconds, "gflop": sum(count * 3 * 2 * m * k * n / 1e9 for (m, k, n), count in sizes.items())}


def seconds_of(product: Product, dtype: torch.dtype, device: str) -> float:
    """Returns the time of a product and its two gradients in seconds."""
    m, k, n = product
    x, w, g = (torch.randn(shape, dtype=dtype, device=device) for shape in ((m, k), (n, k), (m, n)))
    timer = Timer("x @ w.T, g @ w, g.T @ x", globals={"x": x, "w": w, "g": g}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=0.1).median
