"""The exercises print what they say."""

import doctest
import re
from pathlib import Path

import pytest

from bad_inputs import run

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "outputs" / "published" / "exercises.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+|(?=%))")  # with decimals, or a percentage


def agree(expected: str, printed: str) -> bool:
    """Whether two texts differ at most in spaces and by 1 in the last digit of numbers, which depends on the CPU."""
    numbers = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=False)
    return NUMBER.sub("#", expected).split() == NUMBER.sub("#", printed).split() and all(
        abs(float(x) - float(y)) < 1.5 * 10.0 ** -len(x.partition(".")[2]) for x, y in numbers
    )


class Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return agree(want, got)


def test_python_prints_what_the_exercises_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest(TEXT, {}, "exercises", "exercises.md", 0)
    report: list[str] = []
    failed, attempted = doctest.DocTestRunner(Checker()).run(test, out=report.append)
    assert attempted > 10 and not failed, "".join(report)


def test_the_commands_print_what_the_exercises_say() -> None:
    commands = re.findall(r"^    \$ entente (.+)\n((?:    .+\n)+)", TEXT, re.M)
    assert commands
    for command, lines in commands:
        printed = run(f"{command} threads=1", ROOT).out.splitlines()
        assert [line for line in lines.splitlines() if not any(agree(line, other) for other in printed)] == []
