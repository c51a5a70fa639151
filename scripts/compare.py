"""What each variant of a suite is worth: python scripts/compare.py outputs/SUITE [publish=FOLDER]"""

import sys
from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.ablation import comparison  # after the overrides are known to compose, which is quick

    return comparison.check(config)


def main(config: dict[str, Any]) -> None:
    from entente.ablation.page import report

    report(config)


if __name__ == "__main__":
    if sys.argv[1:] and "=" not in sys.argv[1] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"suite={sys.argv[1]}"
    run(main, Path(__file__).resolve().parents[1] / "configs", "compare", check)
