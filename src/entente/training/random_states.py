"""Saves and restores the states of all random generators that training may use, for checkpoints."""

import logging
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

log = logging.getLogger("entente")


def random_state() -> dict[str, Any]:
    """Returns the states of all random generators that training may use, as plain values and tensors."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],  # only this process's device
        "mps": [torch.mps.get_rng_state()] if torch.backends.mps.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(words), next_gauss],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Restores the states of the generators that both `state` and this machine have, and warns about accelerators
    whose state cannot be restored."""
    torch.set_rng_state(state["torch"])
    for device, usable, restore in (
        ("cuda", torch.cuda.is_available(), torch.cuda.set_rng_state),
        ("mps", torch.backends.mps.is_available(), torch.mps.set_rng_state),
    ):
        saved = state[device]
        if usable and len(saved) == 1:
            restore(saved[0])
        elif usable or saved:
            log.warning("the random state of %s cannot be restored, so dropout will draw different random numbers", device)
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, next_gauss = state["python"]
    random.setstate((version, tuple(words), next_gauss))
