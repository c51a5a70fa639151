"""Measures how fast this machine computes the matrix products of a Transformer: an upper bound on training speed.

A linear layer (M, K) x (K, N) needs three products in a training step: the forward pass (M, K) (K, N), the gradient of the
input (M, N) (N, K), and the gradient of the weight (K, M) (M, N). Each takes 2 M K N operations.
"""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import torch

from benchmark.operations import Product, linear_layers
from benchmark.parts import synchronise
from benchmark.wire import Answer, Wire


def seconds_of(product: Product, dtype: torch.dtype, device: str, backward: bool = True) -> float:
    """Returns the time of a product in seconds, including its two gradients if `backward`: the mean over 0.1 seconds."""
    m, k, n = product
    x, w, g = (torch.randn(shape, dtype=dtype, device=device) for shape in ((m, k), (n, k), (m, n)))

    def once() -> None:
        x @ w.T
        if backward:
            g @ w
            g.T @ x

    once()
    synchronise(device)
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < 0.1:
        once()
        synchronise(device)
        done += 1
    return passed / done


def main() -> None:
    wire = Wire()
    spec = wire.settings
    torch.set_num_threads(spec["threads"])
    dtype = torch.bfloat16 if spec["precision"].startswith("bf16") else torch.float32
    sizes = linear_layers(spec["model"], spec["vocabulary"], spec["rows"])
    side = spec["largest"]

    def burst(request: Answer) -> Answer:
        """Times one product of each size, and one of large square matrices. `seconds` and `gflop` are sums over all layers."""
        took = {size: seconds_of(size, dtype, spec["device"]) for size in sizes}
        gflop = {(m, k, n): 3 * 2 * m * k * n / 1e9 for m, k, n in sizes}
        large = {"seconds": seconds_of((side, side, side), dtype, spec["device"], backward=False), "gflop": 2 * side**3 / 1e9}
        return {
            "seconds": sum(took[size] * count for size, count in sizes.items()),
            "gflop": sum(gflop[size] * count for size, count in sizes.items()),
            "gflop_per_second": {"x".join(map(str, size)): gflop[size] / took[size] for size in sizes},
            "large": large,
        }

    wire.answer(torch=torch.__version__, dtype=str(dtype))
    wire.serve(burst)


if __name__ == "__main__":
    main()
