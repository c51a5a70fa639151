"""Counts the floating point operations of a Transformer's matrix products by formula: (M, K) x (K, N) takes 2 M K N.

Arguments: b sentences, s source and t target positions per sentence (padding included), and n target tokens in all sentences
(padding excluded).
"""

from collections.abc import Mapping
from typing import Any

Product = tuple[int, int, int]  # M, K, N
PARTS = ("attention", "layers", "projection")


def forward_operations(model: Mapping[str, Any], vocabulary: int, b: int, s: int, t: int, n: int) -> dict[str, int]:
    """Returns the number of operations in each part of a forward pass. Padding is not projected onto the vocabulary."""
    d, f, layers = model["d_model"], model["d_ff"], model["n_layers"]
    encoder = b * s * (4 * d * d + 2 * d * f)
    decoder = b * t * (4 * d * d + 2 * d * f) + 2 * (b * t + b * s) * d * d
    attention = 2 * b * d * (s * s + t * t + t * s)  # products for the scores and for the weighted sums
    counts = 2 * layers * attention, 2 * layers * (encoder + decoder), 2 * n * d * vocabulary
    return dict(zip(PARTS, counts, strict=True))


def training_operations(model: Mapping[str, Any], vocabulary: int, b: int, s: int, t: int, n: int) -> int:
    """Returns the number of operations in a training step. The backward pass takes twice as many as the forward pass."""
    return 3 * sum(forward_operations(model, vocabulary, b, s, t, n).values())


def linear_layers(model: Mapping[str, Any], vocabulary: int, rows: int) -> dict[Product, int]:
    """Returns how many linear layers of a Transformer compute a product of each size, for `rows` tokens. Each attention has
    four such layers, and each feed-forward network has two; the output projection is another."""
    d, f, layers = model["d_model"], model["d_ff"], model["n_layers"]
    return {(rows, d, d): 12 * layers, (rows, d, f): 4 * layers, (rows, d, vocabulary): 1}
