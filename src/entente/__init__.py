"""Trains, inspects and ablates French-English translation models.

`entente.train(["model=birnn", "seed=2"])` trains a model, and `entente.load("outputs/RUN")` loads a trained one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entente.commands.train import train
    from entente.errors import InputError
    from entente.trained import TrainedModel, load

__all__ = ["InputError", "TrainedModel", "load", "train"]
MODULES = {"InputError": "errors", "TrainedModel": "trained", "load": "trained", "train": "commands.train"}


def __getattr__(name: str) -> Any:
    """Imports a public name only when it is first used, because the import loads torch and commands should start quickly."""
    if name in MODULES:
        return getattr(import_module(f"entente.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
