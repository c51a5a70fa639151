"""Where models look: python scripts/attention.py checkpoint=[outputs/RUN1,outputs/RUN2] sentence="Jane visite l'Afrique." """

from pathlib import Path
from typing import Any

from entente.cli import run


def main(config: dict[str, Any]) -> None:
    from entente.inference import picture_attention  # after the configuration is known to be right, which is quick

    picture_attention(config)


if __name__ == "__main__":
    run(main, Path(__file__).resolve().parents[1] / "configs", "attention")
