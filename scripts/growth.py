"""Measures how time and memory grow with length, vocabulary, width and corpus size:
python scripts/growth.py [pairs=[]] [models=[birnn]]"""

from pathlib import Path

from entente.config.command_line import run_named

if __name__ == "__main__":
    run_named(Path(__file__).resolve().parents[1] / "configs", "growth", "growth.sweeps:check", "growth.sweeps:measure")
