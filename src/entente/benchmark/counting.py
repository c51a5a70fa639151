"""Floating point operations of matrix products, counted as they run: a product of (M, K) and (K, N) has 2 M K N."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Shape = tuple[int, ...]
PRODUCT = re.compile(r"(^|[._])(mm|addmm|bmm|baddbmm|mv|addmv|dot|linear|matmul|attention|conv\w*|rnn|gru|lstm)([._]|$)")
NO_WORK = re.compile(r"cell|philox|_weight$")  # elementwise parts of recurrent cells, and what only prepares


def _attention(query: Shape, key: Shape, value: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *args: Any, out_shape: Any = None, **k: Any
) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


def _add_matrix(into: Shape, a: Shape, b: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * a[0] * a[1] * b[1]


def _add_batched(into: Shape, a: Shape, b: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * a[0] * a[1] * a[2] * b[2]


def _matrix_vector(matrix: Shape, vector: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * matrix[0] * matrix[1]


def _add_matrix_vector(bias: Shape, matrix: Shape, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * matrix[0] * matrix[1]


def _linear(a: Shape, b: Shape, bias: Any = None, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    rows = 1
    for size in a[:-1]:
        rows *= size
    return 2 * rows * b[0] * b[1]


def _formulas() -> dict[Any, Callable[..., int]]:
    """What torch's counter has no formula for, where this torch has the operator."""
    wanted: dict[str, Callable[..., int]] = {
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "addmm_": _add_matrix,
        "baddbmm_": _add_batched,
        "mv": _matrix_vector,
        "addmv": _add_matrix_vector,
        "linear": _linear,
    }
    return {getattr(torch.ops.aten, name): formula for name, formula in wanted.items() if hasattr(torch.ops.aten, name)}


class _Seen(TorchDispatchMode):
    """The names of the products that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.products: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._overloadpacket)
        if PRODUCT.search(name) and not NO_WORK.search(name):
            self.products.add(func._overloadpacket)
        return func(*args, **(kwargs or {}))


class Operations:
    """Those of what runs inside it, forward and backward. `uncounted`: products that ran and of which no formula is known."""

    def __init__(self) -> None:
        self._formulas = _formulas()
        self._counter = FlopCounterMode(display=False, custom_mapping=self._formulas)
        self._seen = _Seen()

    def __enter__(self) -> "Operations":
        self._counter.__enter__()
        self._seen.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._seen.__exit__(*exception)
        self._counter.__exit__(*exception)

    @property
    def total(self) -> int:
        return int(self._counter.get_total_flops())

    @property
    def uncounted(self) -> list[str]:
        return sorted(map(str, self._seen.products - flop_registry.keys() - self._formulas.keys()))
