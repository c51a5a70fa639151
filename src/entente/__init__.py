"""Trains, inspects and ablates French-English translation models. `entente.load("outputs/RUN")` loads a trained model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entente.trained import TrainedModel, load

__all__ = ["TrainedModel", "load"]


def __getattr__(name: str) -> Any:
    """Imports a public name only when it is first used, because the import loads torch and commands should start quickly."""
    if name in __all__:
        from entente import trained

        return getattr(trained, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
