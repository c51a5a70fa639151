"""Compares the speed of Entente with that of other programs: python scripts/benchmark.py benchmark.cases=[transformer,beam]"""

import sys

from benchmark.report import FILE, benchmark, read
from entente.console import exit_codes

if __name__ == "__main__":
    if "--help" in sys.argv:
        print(FILE.read_text(encoding="utf-8"))
    else:
        with exit_codes():
            benchmark(*read(sys.argv[1:]))
