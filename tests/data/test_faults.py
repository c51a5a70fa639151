"""Each rule finds the pairs that it is for, in a text of which most is sound, and says where they are."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bad_inputs import run
from entente.commands.settings import Rule
from entente.data.faults import RULES, SURE, WINDOW, Line, by_row, find_faults, numbers_differ, runs

FRENCH = {"le": "the", "chat": "cat", "chien": "dog", "mange": "eats", "dort": "sleeps", "rouge": "red", "petit": "small"}
FRENCH |= {"voit": "sees", "maison": "house", "jardin": "garden", "dans": "in", "avec": "with", "toujours": "always"}
FRENCH |= {"vieux": "old", "arbre": "tree", "fille": "girl", "souvent": "often", "grand": "tall", "cherche": "seeks"}
GERMAN = "Ich habe heute wirklich keine Zeit, weil meine Schwester aus Hamburg kommt"


def sound(n: int) -> list[tuple[str, str]]:
    generator = random.Random(3)
    sentences = [generator.choices([*FRENCH], k=generator.randint(5, 11)) for _ in range(n)]
    return [(" ".join(words), " ".join(map(FRENCH.__getitem__, words))) for words in sentences]


def text(faulty: dict[int, tuple[str, str]], n: int = 401) -> list[Line]:
    pairs = [faulty.get(i, pair) for i, pair in enumerate(sound(n))]
    return [Line("train", "pairs.tsv", i + 1, *pair) for i, pair in enumerate(pairs)]


PAIRS = sound(401)
CASES: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "empty": lambda src, tgt: (src, "\u00a0"),
    "duplicate": lambda src, tgt: (PAIRS[3][0].upper(), PAIRS[3][1]),
    "near_duplicate": lambda src, tgt: (f"{PAIRS[3][0]} !", PAIRS[3][1]),
    "entity": lambda src, tgt: (src, f"{tgt} &eacute;"),
    "tag": lambda src, tgt: (f'<a href="x">{src}</a>', tgt),
    "encoding": lambda src, tgt: (f"{src} d\u00c3\u00a9j\u00c3\u00a0", tgt),
    "control": lambda src, tgt: (f"{src}\u202a", tgt),
    "untranslated": lambda src, tgt: (src, src.replace("chat", "X")),
    "swapped": lambda src, tgt: (tgt, src),
    "language": lambda src, tgt: (src, GERMAN),
    "numbers": lambda src, tgt: (f"{src} 1 250", f"{tgt} 1,350"),
    "misaligned": lambda src, tgt: PAIRS[7][:1] + PAIRS[13][1:],
}


def test_every_rule_has_a_setting() -> None:
    assert (*RULES,) == Rule.__args__ and {*RULES} - {*SURE} == {"near_duplicate"}
    assert {*RULES} == {*CASES, "shifted"}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_finds_its_faults_and_nothing_else(rule: str) -> None:
    places = [101, 211, 307]
    lines = text({i: CASES[rule](*PAIRS[i]) for i in places})
    found = find_faults(lines, [rule])
    assert [fault.row for fault in found] == places and {fault.rule for fault in found} == {rule}
    assert find_faults(text({}), [rule]) == []


def test_the_usual_ways_to_write_a_number_are_equal() -> None:
    equal = {
        "à 14 h 30": "at 2:30",
        "12 000": "12,000",
        "les années 50": "the 1950s",
        "le 05/06": "5 June 6",
        "un": "1",
        "2,5": "2.5",
    }
    assert not any(numbers_differ(src, tgt) for src, tgt in equal.items())
    assert numbers_differ("le 3 mai", "May 4") and numbers_differ("1 000", "1 in 1,001") and not numbers_differ("deux", "3")


def test_broken_encodings_of_a_no_break_space_are_found() -> None:
    """The second byte of à is a no-break space in Latin-1, which other programs turn into a space."""
    for broken in ("l\u00c3\u00a0 bas", "jusqu'\u00c3 la", "\u00c3 Paris", "20\u00c2\u00a0%"):
        assert find_faults([Line("train", "a", 1, broken, "x")], ["encoding"]), broken
    assert not find_faults([Line("train", "a", 1, "DE MANHÃ O SOL", "été là")], ["encoding"])


def test_a_run_of_shifted_lines_is_named() -> None:
    lines = text({i: (PAIRS[i][0], PAIRS[i + 1][1]) for i in range(113, 211)})
    found = [fault for fault in find_faults(lines, ["shifted"])]
    rows = [fault.row for fault in found]
    assert rows == [*range(rows[0], rows[-1] + 1)] and abs(rows[0] - 113) < 5 and abs(rows[-1] - 210) < 5
    share, _, span = found[0].detail.partition("% of lines ")
    assert int(share) > 70 and span == f"{rows[0] + 1} to {rows[-1] + 1}"


def test_runs_are_where_half_of_every_window_is_bad() -> None:
    bad = np.zeros(97, bool)
    bad[31:61:2] = True  # half of them
    assert runs(bad) == [(31, 59)]
    bad[31:61:4] = False
    assert runs(bad) == [] and runs(bad[: WINDOW - 1]) == []


def test_faults_of_a_pair_are_together() -> None:
    lines = text({5: (f"{PAIRS[5][0]} &amp;", f"<b>{PAIRS[5][1]}</b>"), 9: ("", "x")})
    assert {row: [str(fault) for fault in faults] for row, faults in by_row(find_faults(lines, SURE)).items()} == {
        9: ["empty"],
        5: ["entity (&amp;)", "tag (<b>)"],
    }


@pytest.mark.parametrize("form", ["tsv", "named", "parallel"])
def test_the_command_writes_a_clean_text_and_says_what_it_left_out(form: str, tmp_path: Path) -> None:
    faulty = {7: ("", "nothing"), 20: (f"{PAIRS[20][0]} &quot;", PAIRS[20][1]), 33: PAIRS[20]}
    pairs = [faulty.get(i, pair) for i, pair in enumerate(sound(61))]
    lines, where = ["\t".join(pair) for pair in pairs], "pairs.tsv"
    setting = "data.train=pairs.tsv"
    if form == "parallel":
        for side, name in enumerate(("a.fr", "a.en")):
            (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
        setting, where = "data.train.src=a.fr data.train.tgt=a.en", "a.fr and a.en"
    elif form == "named":
        lines.insert(0, "fr\ten")
    else:
        setting += " data.columns.src=1 data.columns.tgt=2"
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    first = 2 if form == "named" else 1
    vocabulary = "data.tokenizer.vocab_size=300 output_dir=out"
    done = run(f"data data=files {setting} {vocabulary} output=new/clean.tsv rules=[empty,entity]", tmp_path)
    assert done.code == 0 and "59 pairs are in new/clean.tsv, and 2 in new/removed.tsv" in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 80
    heading, *removed = [line.split("\t") for line in (tmp_path / "new" / "removed.tsv").read_text().splitlines()]
    assert heading == ["where", "line", "reason", "src", "tgt"]
    assert [cells[:3] for cells in removed] == [[where, str(7 + first), "empty"], [where, str(20 + first), "entity (&quot;)"]]
    kept = (tmp_path / "new" / "clean.tsv").read_text().splitlines()
    assert kept == ["src\ttgt", *("\t".join(pair) for i, pair in enumerate(pairs) if i not in (7, 20))]
    again = run(f"data data=files data.train=new/clean.tsv {vocabulary} rules=[empty,entity]", tmp_path)
    assert again.code == 0 and "Faulty pairs: none" in again.out
