"""Measures the rules that find faulty pairs:  python scripts/planted_faults.py PAIRS [NUMBER]

PAIRS is a file with lines of French source TAB English target. NUMBER (20,000) of its pairs are drawn, in random order, and
PLANTED faults of each kind are planted among them. The table says how many of each kind the default rules find. A pair that is
found and was not planted counts as sound, even if it has a fault of its own. Random choices are the same each time.
"""

import random
import re
import sys
from collections.abc import Callable
from html.entities import codepoint2name
from itertools import product
from pathlib import Path

from entente.console import Task, exit_codes, start_log
from entente.data.faults import Line, find_faults
from entente.data.files import Columns, read_pairs
from entente.data.pairs import Pair
from entente.errors import InputError

PLANTED = 100
TAGS = ("<b>{}</b>", "<i>{}</i>", "<br>{}", '<a href="x.html">{}</a>', "<p>{}", "{}<br/>", '<span class="s">{}</span>')
NUMBER = re.compile(r"\d+")
# Every subject goes with every predicate and every end.
FOREIGN = [
    (
        "Mein Bruder|Die Lehrerin|Unser Nachbar|Der Ausschuss".split("|"),
        "hat das Buch|wollte den Antrag|braucht die neue Lampe|kennt diese Stadt".split("|"),
        "noch nicht gesehen.|seit gestern.|wegen des Wetters nicht.|und schweigt.".split("|"),
    ),
    (
        "Mi hermana|El ministro|Nuestro perro|La señora Gómez".split("|"),
        "compró una casa|no quiere hablar|puede llegar tarde|vive con sus hijos".split("|"),
        "cerca de la playa.|hasta el año que viene.|porque hace mucho frío.|según esta ley.".split("|"),
    ),
    (
        "Il mio amico|La signora Rossi|Questo bambino|Il consiglio".split("|"),
        "non può rispondere|abita qui da molto|vorrebbe un biglietto|mangia troppo".split("|"),
        "alla nostra domanda.|con la sua famiglia.|prima di mezzogiorno.|perché è stanco.".split("|"),
    ),
    (
        "Mijn zus|De burgemeester|Onze oude fiets|Het kind".split("|"),
        "staat al lang|wil niet meer|heeft vandaag gewerkt|moet even wachten".split("|"),
        "voor het raam.|omdat het regent.|zonder vergunning.|in de keuken.".split("|"),
    ),
]


def foreign_sentences(generator: random.Random) -> list[str]:
    """Returns different sentences in German, Spanish, Italian and Dutch, in random order."""
    sentences = [" ".join(parts) for language in FOREIGN for parts in product(*language)]
    return generator.sample(sentences, len(sentences))


def on_one_side(pair: Pair, change: Callable[[str], str], generator: random.Random) -> Pair:
    src, tgt = pair
    return (change(src), tgt) if generator.random() < 0.5 else (src, change(tgt))


def entity(text: str, generator: random.Random) -> str:
    """Writes a character as an entity: one that HTML escapes, if there is one, or else a space."""
    places = [i for i, character in enumerate(text) if ord(character) in codepoint2name or character == "'"]
    i = generator.choice(places or [i for i, character in enumerate(text) if character == " "] or [0])
    name = "nbsp" if text[i] == " " else codepoint2name.get(ord(text[i]), f"#{ord(text[i])}")
    return f"{text[:i]}&{generator.choice([name, f'#{ord(text[i])}'])};{text[i + 1 :]}"


def tag(text: str, generator: random.Random) -> str:
    words = text.split(" ")
    i = generator.randrange(len(words))
    words[i] = generator.choice(TAGS).format(words[i])
    return " ".join(words)


def mojibake(text: str, generator: random.Random) -> str:
    """Reads UTF-8 as Windows-1252 or Latin-1; half of the time, a program then replaces no-break spaces."""
    read = text.encode().decode(generator.choice(["cp1252", "latin-1"]), errors="ignore")
    return read.replace("\u00a0", " ") if generator.random() < 0.5 else read


def leave_untranslated(pair: Pair, generator: random.Random) -> Pair:
    """Puts one side on both; half of the time, without one of its words."""
    text = generator.choice(pair)
    words = text.split(" ")
    if generator.random() < 0.5 and len(words) > 3:
        del words[generator.randrange(len(words))]
    return (text, " ".join(words)) if text is pair[0] else (" ".join(words), text)


def other_number(pair: Pair, generator: random.Random) -> Pair:
    match = generator.choice([*NUMBER.finditer(pair[1])])
    number = str(int(match[0]) + generator.choice([1, 2, 3, 7, 10, 100]))
    return pair[0], pair[1][: match.start()] + number + pair[1][match.end() :]


def plant(pairs: list[Pair], generator: random.Random) -> dict[int, str]:
    """Changes some of the pairs, and returns the kind of each fault by its row."""
    sentences, sound = foreign_sentences(generator), pairs[:]
    changes: dict[str, tuple[Callable[[Pair], Pair], Callable[[Pair], bool]]] = {
        "numbers": (
            lambda pair: other_number(pair, generator),
            lambda pair: bool(NUMBER.search(pair[1])) and sorted(NUMBER.findall(pair[0])) == sorted(NUMBER.findall(pair[1])),
        ),
        "mojibake": (lambda pair: (mojibake(pair[0], generator), pair[1]), lambda pair: bool(re.search("[à-ÿœ’]", pair[0]))),
        "entity": (lambda pair: on_one_side(pair, lambda text: entity(text, generator), generator), all),
        "tag": (lambda pair: on_one_side(pair, lambda text: tag(text, generator), generator), all),
        "untranslated": (lambda pair: leave_untranslated(pair, generator), all),
        "swapped sides": (lambda pair: (pair[1], pair[0]), all),
        "another language": (lambda pair: on_one_side(pair, lambda _: sentences.pop(), generator), all),
    }
    start = generator.randrange(len(pairs) - PLANTED)
    planted = dict.fromkeys(range(start, start + PLANTED), "shifted")
    for row in planted:
        pairs[row] = pairs[row][0], sound[row + 1][1]
    rows = generator.sample(range(len(pairs)), len(pairs))
    for kind, (change, is_possible) in changes.items():
        possible = [row for row in rows if row not in planted and is_possible(pairs[row])][:PLANTED]
        for row in possible:
            pairs[row], planted[row] = change(pairs[row]), kind
    last = [row for row in range(len(pairs) // 2, len(pairs)) if row not in planted]
    first = [row for row in range(len(pairs) // 2) if row not in planted]
    for row, copied in zip(generator.sample(last, PLANTED), generator.sample(first, PLANTED), strict=True):
        src, tgt = pairs[copied]
        pairs[row], planted[row] = generator.choice([(src, tgt), (src.upper(), tgt), (f"{src} ", tgt)]), "duplicate"
    return planted


def faulty_rows(pairs: list[Pair]) -> set[int]:
    faults, _ = find_faults([Line("train", "pairs", row + 1, *pair) for row, pair in enumerate(pairs)])
    return {fault.row for fault in faults}


def main(path: Path, number: int) -> None:
    generator = random.Random(1)
    pairs = [(src, tgt) for _, src, tgt in read_pairs(path, Columns(("fr", "en"), (1, 2))) if src and tgt]
    if len(pairs) < number or number < 20 * PLANTED:
        raise InputError(f"{path}: has {len(pairs):,} pairs; give a number of them, from {20 * PLANTED:,} to that")
    pairs = generator.sample(pairs, number)
    with Task("checking the untouched pairs"):
        untouched = faulty_rows(pairs)
    planted = plant(pairs, generator)
    with Task("checking the pairs with planted faults"):
        removed = faulty_rows(pairs)
    print("| fault | planted | found |\n|---|---|---|")
    for kind in sorted({*planted.values()}):
        rows = {row for row, each in planted.items() if each == kind}
        print(f"| {kind} | {len(rows)} | {len(rows & removed) / len(rows):.0%} |")
    print(f"| none | {number - len(planted):,} | {len(removed - planted.keys()) / (number - len(planted)):.2%} |")
    print(f"\n{len(removed & planted.keys()) / len(removed):.1%} of the pairs found were planted.")
    print(f"Of the untouched pairs, {len(untouched) / number:.2%} were found.")


if __name__ == "__main__":
    with exit_codes():
        start_log()
        match sys.argv[1:]:
            case [file]:
                main(Path(file), 20_000)
            case [file, number] if number.isdecimal():
                main(Path(file), int(number))
            case _:
                raise InputError("give a file of pairs: python scripts/planted_faults.py PAIRS.tsv [NUMBER]")
