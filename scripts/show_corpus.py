"""The same as `entente corpus`."""

from entente.__main__ import run_verb

if __name__ == "__main__":
    run_verb("corpus")
