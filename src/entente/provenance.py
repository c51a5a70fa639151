"""Where a run comes from."""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parent


def provenance() -> dict[str, str]:
    """Returns the time, the commit, the command, and the versions of torch and Python."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": " ".join(["entente", *sys.argv[1:]]),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Returns the commit of this checkout, or "unknown" if the package is installed elsewhere: git could then find another
    repository, one that contains the environment."""
    if not (PACKAGE.parents[1] / ".git").exists():
        return "unknown"
    git = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, cwd=PACKAGE, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    except OSError:  # git is not installed
        return "unknown"
