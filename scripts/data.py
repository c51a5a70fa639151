"""Runs `entente data` with the configs/ of this checkout."""

from pathlib import Path

from entente.__main__ import run_verb

if __name__ == "__main__":
    run_verb("data", Path(__file__).resolve().parents[1] / "configs")
