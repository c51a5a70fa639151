"""Gives a model its fast implementations, from outside: the model's own files do not know them.

Each replaces one method on the instances, so that parameters, their names and hooks stay as they are. Packed layers are for
decoding alone and have a context manager of their own (packed.py); memory.py concerns the whole process.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar

from torch import nn

from entente.fast import dropout, fused, loss, recurrent
from entente.models import BiRNN, Seq2Seq
from entente.models.attention import MultiHeadAttention

Model = TypeVar("Model", bound=nn.Module)

# Class -> method -> what replaces it.
FAST: dict[type[nn.Module], dict[str, Callable[..., Any]]] = {
    nn.Dropout: {"forward": dropout.drop},
    MultiHeadAttention: {"attend": fused.attend},
    BiRNN: {"read": recurrent.read, "write": recurrent.write},
    Seq2Seq: {"loss": loss.loss},
}


def attach(model: Model) -> Model:
    """The model itself, with every fast implementation that computes the same. Attaching twice changes nothing."""
    for module, name, function in _replacements(model):
        if not isinstance(module, MultiHeadAttention) or fused.is_standard(module):
            setattr(module, name, MethodType(function, module))
    return model


def detach(model: Model) -> Model:
    """The model itself, with the methods of its classes again."""
    for module, name, _ in _replacements(model):
        vars(module).pop(name, None)
    return model


def _replacements(model: nn.Module) -> list[tuple[nn.Module, str, Callable[..., Any]]]:
    return [
        (module, name, function)
        for module in model.modules()
        for kind, methods in FAST.items()
        if isinstance(module, kind)
        for name, function in methods.items()
    ]
