"""The same as `entente evaluate`."""

from entente.__main__ import run_verb

if __name__ == "__main__":
    run_verb("evaluate")
