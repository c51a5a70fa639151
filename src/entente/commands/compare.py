"""`entente compare`: what each variant of a suite is worth."""

from entente.ablation.comparison import check
from entente.ablation.page import report as main

__all__ = ["check", "main"]
