"""Train, look into and take apart French-English translation models. From Python: `entente.load("outputs/RUN")`."""

import os
from typing import TYPE_CHECKING, Any

# Huge pages of 2 MB for torch's large tensors on Linux, where the kernel grants them on request: fewer page table lookups in
# every pass over memory. torch reads this variable once, when it is imported.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from entente.trained import TrainedModel, load

__all__ = ["TrainedModel", "load"]


def __getattr__(name: str) -> Any:
    """Imports torch only when something is loaded, so that commands can answer quickly."""
    if name in __all__:
        from entente import trained

        return getattr(trained, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
