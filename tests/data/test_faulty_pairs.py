"""Each rule finds the pairs that it is for, in a text of which most is sound, and says where they are."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_inspection import corpus_of

from bad_inputs import run
from entente.commands.data import advice, write_clean
from entente.commands.settings import Rule
from entente.data.corpora import READERS
from entente.data.faults import RULES, SURE, WINDOW, Line, find_faults, runs
from entente.data.files import Columns, read_pairs
from entente.data.numbers import numbers_differ
from entente.settings import FilesSettings, GrammarSettings

FRENCH = {"le": "the", "chat": "cat", "chien": "dog", "mange": "eats", "dort": "sleeps", "rouge": "red", "petit": "small"}
FRENCH |= {"voit": "sees", "maison": "house", "jardin": "garden", "dans": "in", "avec": "with", "toujours": "always"}
FRENCH |= {"vieux": "old", "arbre": "tree", "fille": "girl", "souvent": "often", "grand": "tall", "cherche": "seeks"}
GERMAN = "Ich habe heute wirklich keine Zeit, weil meine Schwester aus Hamburg kommt"


def sound(n: int) -> list[tuple[str, str]]:
    generator = random.Random(3)
    sentences = [generator.choices([*FRENCH], k=generator.randint(5, 11)) for _ in range(n)]
    return [(" ".join(words), " ".join(map(FRENCH.__getitem__, words))) for words in sentences]


def text(faulty: dict[int, tuple[str, str]], all_pairs: list[tuple[str, str]] | None = None) -> list[Line]:
    pairs = [faulty.get(i, pair) for i, pair in enumerate(all_pairs or PAIRS)]
    return [Line("train", "pairs.tsv", i + 1, *pair) for i, pair in enumerate(pairs)]


PAIRS = sound(401)  # lists of words, which misaligned pairs need few of
SENTENCES = [pair[1:] for pair in READERS["grammar"](GrammarSettings(train=401, valid=1, test=1))["train"][0].pairs]
LANGUAGES = ("untranslated", "swapped", "language")
CASES: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "empty": lambda src, tgt: (src, "\u00a0"),
    "duplicate": lambda src, tgt: (PAIRS[3][0].upper(), PAIRS[3][1]),
    "near_duplicate": lambda src, tgt: (f"{PAIRS[3][0]} !", PAIRS[3][1]),
    "entity": lambda src, tgt: (src, f"{tgt} &eacute;"),
    "tag": lambda src, tgt: (f'<a href="x">{src}</a>', tgt),
    "encoding": lambda src, tgt: (f"{src} d\u00c3\u00a9j\u00c3\u00a0", tgt),
    "control": lambda src, tgt: (f"{src}\x07", tgt),
    "untranslated": lambda src, tgt: (src, f"{src} X"),
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
    pairs = SENTENCES if rule in LANGUAGES else PAIRS
    lines = text({i: CASES[rule](*pairs[i]) for i in places}, pairs)
    found, corresponds = find_faults(lines, [rule])
    assert [fault.row for fault in found] == places and {fault.rule for fault in found} == {rule} and corresponds
    assert find_faults(text({}, pairs), [rule]) == ([], True)


def test_the_usual_ways_to_write_a_number_are_equal() -> None:
    equal = {
        "à 14 h 30": "at 2:30",
        "12 000": "12,000",
        "les années 50": "the 1950s",
        "le 05/06": "5 June 6",
        "un": "1",
        "2,5": "2.5",
        "٣ كتب": "3 books",
        "le 3 mai 2005": "3 May 05",
        "les années 2000": "the '00s",
    }
    assert not any(numbers_differ(src, tgt) for src, tgt in equal.items())
    assert (
        numbers_differ("le 3 mai", "May 4") and numbers_differ("1 000 ou 2", "2 in 1,001") and not numbers_differ("deux", "3")
    )
    assert not numbers_differ("1 500 000 habitants", "1.5 million inhabitants"), "there are not as many on both sides"
    for src, tgt in (
        ("1 000 000 €", "€1 million"),
        ("2 mil", "2,000"),
        ("17 Uhr", "5 o'clock"),
        ("a las 17", "at 5"),
        ("0", "00"),
    ):
        assert not numbers_differ(src, tgt), src
    assert numbers_differ("20", "2")
    assert numbers_differ("17 pages", "5 pages") and not numbers_differ("à 17 heures", "at 5 p.m.")


def test_joiners_and_directions_of_some_scripts_are_no_fault() -> None:
    lines = [Line("train", "a", 1, "می\u200cخواهم", "क्\u200dष\u202bשלום\u202c"), Line("train", "a", 2, "a\x07", "b")]
    assert [fault.row for fault in find_faults(lines, ["control"])[0]] == [1]


def test_broken_encodings_of_a_no_break_space_are_found() -> None:
    """The second byte of à is a no-break space in Latin-1, which other programs turn into a space."""
    broken_texts = [
        "l\u00c3\u00a0 bas",
        "jusqu'\u00c3 la",
        "\u00c3 Paris",
        "voil\u00c3",
        "20\u00c2\u00a0%",
        "Bonjour\u00c2 !",
        "20\u00c2 %",
    ]
    for text in ("le cœur", "Ça", "À demain", "L’œuvre", "Škoda", "Đoković"):
        broken_texts += [text.encode().decode("cp1252", errors="ignore")]
    for broken in broken_texts:
        assert find_faults([Line("train", "a", 1, broken, "x")], ["encoding"])[0], broken
    for text in ("DE MANHÃ O SOL", "été là", "Âşık Veysel bir ozandır.", "Âşığım sana.", "Â !"):
        assert not find_faults([Line("train", "a", 1, text, "x")], ["encoding"])[0], text


@pytest.mark.parametrize(("first", "last"), [(113, 210), (201, 400), (101, 400)])
def test_a_run_of_shifted_lines_is_named(first: int, last: int) -> None:
    """Even where it is half of the text, or three quarters, and where the next text has a fault near its beginning."""
    lines = text({i: (PAIRS[i][0], PAIRS[(i + 1) % len(PAIRS)][1]) for i in range(first, last + 1)})
    lines += [Line("valid", "valid.tsv", i + 1, *(PAIRS[i][:1] + PAIRS[i + (i == 3)][1:])) for i in range(29)]
    rows = [fault.row for fault in find_faults(lines, ["shifted"])[0]]
    assert rows == [*range(rows[0], rows[-1] + 1)] and abs(rows[0] - first) < 5 and abs(rows[-1] - last) < 5
    share, _, span = find_faults(lines, ["shifted"])[0][0].detail.partition("% of lines ")
    assert int(share) > 70 and span == f"{rows[0] + 1} to {rows[-1] + 1}"


def test_a_text_that_is_shifted_as_a_whole_does_not_correspond() -> None:
    lines = [Line("train", "a", i, PAIRS[i][0], PAIRS[i + 1][1]) for i in range(400)]
    assert find_faults(lines, ["misaligned", "shifted"]) == ([], False)
    assert any("are the lines shifted" in sentence for sentence in advice(corpus_of(PAIRS[:9], PAIRS[9:11]), lines, [], False))


def test_entities_of_all_kinds_are_found() -> None:
    for entity in "&amp; &Eacute; &frac12; &#39; &#128512; &#x1F600; &apos; &nbsp &check; &#39 &quot".split():
        assert find_faults([Line("train", "a", 1, f"a {entity} b", "x")], ["entity"])[0][0].detail == entity
    for entity in ("& quot ;", "& # 39 ;"):
        assert find_faults([Line("train", "a", 1, f"a {entity}", "x")], ["entity"])[0][0].detail == entity
    assert not find_faults([Line("train", "a", 1, "R&D; A & B; x", "AT&T; rock &roll;")], ["entity"])[0]


def test_a_short_sentence_does_not_tell_its_language() -> None:
    german = {101: "Ich habe heute Zeit", 211: "Ich habe heute keine Zeit"}
    lines = text({i: (SENTENCES[i][0], sentence) for i, sentence in german.items()}, SENTENCES)
    assert [fault.row for fault in find_faults(lines, ["language"])[0]] == [211]


def test_tags_of_all_kinds_are_found() -> None:
    plain = "<b> </p> <o:p> <!-- <my-tag> <![CDATA[ <?xml <!DOCTYPE".split()
    for tag in (*plain, "<br />", "<a href='x'>", "<font color=red>", "<input disabled>", "<script async src='x'>"):
        assert find_faults([Line("train", "a", 1, f"un {tag} deux", "x")], ["tag"])[0][0].detail == tag
    for text in ("a <b et c> d", "Écris à <John Smith>.", "x < y > z", "<3", "<https://a.b>"):
        assert not find_faults([Line("train", "a", 1, text, "x")], ["tag"])[0], text


def test_runs_are_where_half_of_every_window_is_bad() -> None:
    bad = np.zeros(97, bool)
    bad[31:61:2] = True  # half of them
    assert runs(bad) == [(31, 59)]
    bad[31:61:4] = False
    assert runs(bad) == [] and runs(bad[: WINDOW - 1]) == []


def test_faults_of_a_pair_are_together(tmp_path: Path) -> None:
    lines = text({5: (f"{PAIRS[5][0]} &amp;", f"<b>{PAIRS[5][1]}</b>"), 9: ("", "x")}, SENTENCES)
    write_clean(tmp_path / "clean.tsv", lines, find_faults(lines, SURE)[0], FilesSettings(train="pairs.tsv"))
    removed = [line.split("\t") for line in (tmp_path / "removed.tsv").read_text().splitlines()]
    assert [cells[2] for cells in removed[-2:]] == ["entity (&amp;), tag (<b>)", "empty"]


def test_pairs_without_words_are_no_near_copies() -> None:
    lines = text({5: ("?", "?"), 9: ("♪ ♪", "♪"), 13: ("…", "!")})
    assert not find_faults(lines, ["near_duplicate"])[0]


@pytest.mark.parametrize(
    ("columns", "text", "heading"),
    [
        ("src=2", "x\tfr\ten\n0\ta\tb\n", "tgt\tsrc"),
        ("src=2 tgt=en", "en\tfr\nb\ta\n", "en\tsrc"),
        ("tgt=1", "en\tfr\nb\ta\n", "tgt\tsrc"),
        ("src=3 tgt=en", "x\ten\tfr\n0\tb\ta\n", "en\t\tsrc"),
        ("src=French", "English\tFrench\ten\n0\ta\tb\n", "French\ttgt"),
    ],
)
def test_a_clean_text_has_its_columns_where_the_settings_look_for_them(
    columns: str, text: str, heading: str, tmp_path: Path
) -> None:
    (tmp_path / "x.tsv").write_text(text)
    selected = dict(setting.split("=") for setting in columns.split())
    settings = FilesSettings(train="x.tsv", columns={side: int(c) if c.isdigit() else c for side, c in selected.items()})
    for name in ("x.tsv", "y.tsv"):
        places = Columns(("fr", "en"), (settings.columns.src, settings.columns.tgt))
        [(number, src, tgt)] = read_pairs(tmp_path / name, places)
        assert (src, tgt) == ("a", "b")
        write_clean(tmp_path / "y.tsv", [Line("train", name, number, src, tgt)], [], settings)
    assert (tmp_path / "y.tsv").read_text().splitlines()[0] == heading


@pytest.mark.parametrize("form", ["swapped", "named", "parallel"])
def test_the_command_writes_a_clean_text_that_the_same_settings_read(form: str, tmp_path: Path) -> None:
    faulty = {7: ("", "nothing"), 20: (f"{PAIRS[20][0]}\u202f&quot;", PAIRS[20][1]), 33: PAIRS[20]}
    pairs = [faulty.get(i, pair) for i, pair in enumerate(sound(61))]
    kept = ["\t".join(pair) for i, pair in enumerate(pairs) if i not in (7, 20)]
    lines, where, setting, first = ["\t".join(pair) for pair in pairs], "pairs.tsv", "data.train=pairs.tsv", 1
    columns = ""
    if form == "parallel":
        for side, name in enumerate(("a.fr", "a.en")):
            (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
        setting, where, kept = "data.train.src=a.fr data.train.tgt=a.en", "a.fr and a.en", ["src\ttgt", *kept]
    elif form == "named":
        columns, lines, first, kept = "data.columns.src=French", ["French\ten", *lines], 2, ["French\ttgt", *kept]
    else:
        columns, lines = "data.columns.src=2 data.columns.tgt=1", ["\t".join(pair[::-1]) for pair in pairs]
        kept = ["\t".join(line.split("\t")[::-1]) for line in kept]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    options = f"{columns} data.tokenizer.vocab_size=300 output_dir=out rules=[empty,entity]"
    done = run(f"data data=files {setting} {options} output=new/clean.tsv", tmp_path)
    assert done.code == 0 and "59 pairs are in new/clean.tsv, and 2 in new/removed.tsv" in " ".join(done.out.split())
    assert max(len(line) for line in done.out.splitlines() if line.startswith("    ")) <= 80
    heading, *removed = [line.split("\t") for line in (tmp_path / "new" / "removed.tsv").read_text().splitlines()]
    assert heading == ["where", "line", "reason", "src", "tgt"]
    assert removed == [[where, str(7 + first), "empty", *faulty[7]], [where, str(20 + first), "entity (&quot;)", *faulty[20]]]
    assert (tmp_path / "new" / "clean.tsv").read_text().splitlines() == kept
    again = run(f"data data=files data.train=new/clean.tsv {options}", tmp_path)
    assert again.code == 0 and "Faulty pairs: none" in again.out
    if form == "parallel":
        for rules, expected in (("rules=[]", "Faulty pairs: none"), ("", "entity: 1 (")):
            shown = run(f"data data=files {setting} data.tokenizer.vocab_size=300 output_dir=out {rules}", tmp_path)
            assert shown.code == 0 and expected in shown.out
