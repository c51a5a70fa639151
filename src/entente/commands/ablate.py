"""`entente ablate`: variants x seeds, all else equal, then the comparison."""

from entente.ablation.suite import ablate as main
from entente.ablation.suite import check

__all__ = ["check", "main"]
