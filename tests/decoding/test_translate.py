"""Tests translation of lines as they come: long ones, scores, and a program that waits for each answer."""

import subprocess
import sys
from pathlib import Path

import pytest

import entente
from bad_inputs import run
from entente.decoding.search import length_penalty
from entente.decoding.translate import sentences_of, translate, translate_lines

SENTENCES = ["Le chat voit le chien.", "Le grand chien dort !", "« Le chat mange ? »", "Le Dr. Petit dort…"]


def test_a_long_line_is_divided_at_the_ends_of_its_sentences() -> None:
    assert sentences_of(" ".join(SENTENCES * 2)) == [" ".join(SENTENCES * 2)], "it is not long enough"
    many = SENTENCES * 5
    assert sentences_of(" ".join(many)) == many
    clause = " ".join(["le chat dort, 3.5 fois sur M. Chat."] * 20)
    assert sentences_of(clause) == [clause], "what begins with a small letter is no sentence"


def test_a_long_line_is_translated_sentence_by_sentence(base: Path) -> None:
    trained = entente.load(base / "run", device="cpu")
    settings = trained.settings.search.model_copy(update={"beam": 3, "length_penalty": 0.6})
    parts = [n_best[0] for n_best in translate(trained.model, trained.vocabulary, SENTENCES * 5, settings)]
    line = " ".join(SENTENCES * 5)
    lines = [line, "", SENTENCES[1], "LE CHAT VOIT LE CHIEN.", "OTAN"]
    translations = translate_lines(trained.model, trained.vocabulary, lines, settings)
    (_, long), (_, empty), (_, short), (loud, quiet), (_, name) = translations
    assert long.tokens == [token for part in parts for token in part.tokens] and long.ended == all(part.ended for part in parts)
    lengths = [len(part.tokens) + part.ended for part in parts]
    total = sum(part.score * length_penalty(settings, n) for part, n in zip(parts, lengths, strict=True))
    assert long.score * length_penalty(settings, sum(lengths)) == pytest.approx(total, rel=0.05)  # if a part was cut
    assert empty.tokens == [] and short.tokens == parts[1].tokens
    text = trained.vocabulary.text(parts[0].tokens)
    assert loud == text.upper() and quiet.tokens == parts[0].tokens
    assert name.tokens == translate(trained.model, trained.vocabulary, ["OTAN"], settings)[0][0].tokens
    assert trained.translate(line, beam=3, length_penalty=0.6) == trained.vocabulary.text(long.tokens)


def test_scores_are_means_over_pieces_and_flags_say_what_to_distrust(base: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join([SENTENCES[0], "", "Le zorglub dort.", " ".join(SENTENCES * 5)]) + "\n")
    ended = run(f"translate checkpoint={base / 'run'} input=in.txt scores=true search.beam=1", tmp_path)
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert ended.code == 0 and len(rows) == 4 and rows[1] == ["", "", ""]
    trained = entente.load(base / "run", device="cpu")
    text, score, flags = rows[0]
    if not flags:
        assert float(score) == pytest.approx(trained.score(SENTENCES[0], text).log_probabilities.mean().item(), abs=2e-4)
    assert "unseen" in rows[2][2] and float(rows[3][1]) < 0
    several = run(f"translate checkpoint={base / 'run'} input=in.txt search.n_best=2 search.beam=2", tmp_path)
    assert "2\t\t" in several.out.splitlines(), "an empty line has no score"


def test_a_program_that_waits_gets_an_answer_to_each_line(base: Path) -> None:
    command = [sys.executable, "-P", "-m", "entente", "translate", f"checkpoint={base / 'run'}", "search.beam=1", "threads=1"]
    answers = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin and process.stdout
        for sentence in SENTENCES:
            process.stdin.write(f"{sentence}\n")
            process.stdin.flush()
            answers.append(process.stdout.readline())  # would wait for ever if the command waited for more input
        process.stdin.close()
        assert process.stdout.read() == "" and process.wait(timeout=60) == 0
    assert all(answer.endswith("\n") for answer in answers)
