"""One attention step by step, in numbers: python scripts/trace.py checkpoint=outputs/RUN sentence="Il dort." kind=cross"""

from pathlib import Path
from typing import Any

from entente.config.command_line import run


def check(config: dict[str, Any]) -> list[str]:
    from entente.training.settings import Trace, problems_of  # after the overrides are known to compose, which is quick

    return problems_of(Trace, config)


def main(config: dict[str, Any]) -> None:
    from entente.commands.trace import trace_attention

    trace_attention(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "trace", check)
