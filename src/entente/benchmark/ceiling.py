"""The fastest products this machine has for the sizes of a Transformer: `python -m entente.benchmark.ceiling SETTINGS.json`.

A linear layer (M, K) x (K, N) makes three in a training step: forward (M, K) (K, N), the gradient of its input (M, N) (N, K),
and that of its weight (K, M) (M, N); all three have 2 M K N operations.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch

from entente.benchmark.parts import synchronise
from entente.benchmark.wire import Answer, Wire, serve, setting_file

Product = tuple[int, int, int]  # M, K, N


def products(model: Mapping[str, Any], vocabulary: int, rows: int) -> dict[Product, int]:
    """The linear layers of a Transformer on `rows` tokens, and how many there are of each size: four projections an attention,
    two a feed-forward network, and the output."""
    d, d_ff, layers = model["d_model"], model["d_ff"], model["n_layers"]
    return {(rows, d, d): 12 * layers, (rows, d, d_ff): 4 * layers, (rows, d, vocabulary): 1}


def seconds_of(product: Product, dtype: torch.dtype, device: str, backward: bool = True) -> float:
    """Of one product with, if asked for, the two that its gradients take; the mean of as many as a tenth of a second has."""
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
    spec = setting_file()
    torch.set_num_threads(spec["threads"])
    dtype = torch.bfloat16 if spec["precision"].startswith("bf16") else torch.float32
    sizes = products(spec["model"], spec["vocabulary"], spec["rows"])
    side = spec["largest"]

    def burst(request: Answer) -> Answer:
        """GFLOP/s of each size; of the model's mix of them, each as often as it has it; of the large square."""
        started = time.perf_counter()
        took = {size: seconds_of(size, dtype, spec["device"]) for size in sizes}
        large = seconds_of((side, side, side), dtype, spec["device"], backward=False)
        operations = {(m, k, n): 3 * 2 * m * k * n for m, k, n in sizes}
        mix = sum(operations[s] * c for s, c in sizes.items()) / sum(took[s] * c for s, c in sizes.items())
        each = {"x".join(map(str, size)): operations[size] / took[size] / 1e9 for size in sizes}
        answer = {"gflops": mix / 1e9, "each": each, "large": {f"{side} cubed": 2 * side**3 / large / 1e9}}
        return {"seconds": time.perf_counter() - started, **answer}

    wire.answer(torch=torch.__version__, dtype=str(dtype))
    serve(wire, burst)


if __name__ == "__main__":
    main()
