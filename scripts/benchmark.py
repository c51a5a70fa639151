"""Compares the speed of Entente with that of other programs: python scripts/benchmark.py benchmark.cases=[transformer,beam]"""

import sys

from benchmark.report import benchmark
from benchmark.settings import FILE, read
from entente.console.endings import endings

if __name__ == "__main__":
    if "--help" in sys.argv:
        print(FILE.read_text(encoding="utf-8"))
    else:
        with endings():
            benchmark(*read(sys.argv[1:]))
