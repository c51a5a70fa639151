"""Tests translation of lines as they come: long ones, scores, and a program that waits for each answer."""

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
import torch

import entente
import entente.decoding.translate as module
from bad_inputs import run
from entente.commands import translate as translate_command
from entente.data.text import sentences_of
from entente.data.tokenizer import BOS, Vocabulary
from entente.decoding.search import Hypothesis
from entente.decoding.translate import Translation, translate, translate_lines
from entente.errors import InputError

SENTENCES = ["Le chat voit le chien.", "Le grand chien dort !", "« Le chat mange ? »", "Le Dr. Petit dort…"]


def test_a_long_line_is_divided_at_the_ends_of_its_sentences() -> None:
    sixty = ["Le chat dort.", "Il mange ici.", "Elle dort là."] * 7
    assert [len(sentences_of(" ".join(sixty)[: -len(end)])) for end in (". Elle dort là.", "dort là.", "x")] == [20, 21, 21]
    assert [len(sentences_of(" ".join(["Il dort."] * n))) for n in (1, 2, 3, 25)] == [1, 1, 3, 25]
    pair = ["Le chat qui dort sur le " + "grand " * 30 + "lit ronfle.", "Il mange ici."]
    assert sentences_of(" ".join(pair)) == [" ".join(pair)] and sentences_of(" ".join([pair[0]] * 2)) == [pair[0]] * 2
    lines = [
        "il dort.|il mange ?|là !",
        "- Oui.|- Non.|– Si !",
        "2 chats dorment.|3 ont faim.|Oui.",
        "ذهب د. محمد.|هو هنا.|نعم ؟|لا.",
    ]
    lines += [
        "1. Le chat dort. Le chien mange.",
        "see e.g. this and i.e. that, etc. and so on.",
        "Sen. Obama met Gov. Brown here.",
    ]
    for line in (*lines, "Voir chap. 3 et chap. 4 du livre, p. 5."):
        assert sentences_of(line.replace("|", " ")) == line.split("|")
    many = [*SENTENCES, "He asked Mrs. Smith and Prof. Jones about it.", "But J. Smith knew it.", "Elle est là."] * 3
    assert sentences_of(" ".join(many)) == many
    assert sentences_of(" ".join(many).upper()) == [sentence.upper() for sentence in many]
    ends = ["Il y en a.", "Elle a eu 5.", "C'est de l'art.", "Elle peint."] * 6
    assert sentences_of(" ".join(ends)) == ends
    began = time.monotonic()
    sentences_of("a " * 61 + "." + ' "' * 20_000 + "1")
    assert time.monotonic() - began < 5, "quadratic in the length of a line"
    clause = " ".join(["le chat dort, cf. Art. 3.5, etc. 3 fois sur le chat J."] * 20)
    assert sentences_of(clause) == [clause], "what begins with a small letter is no sentence if others begin with a capital"


def test_lines_unlike_the_training_text_are_translated_as_if_they_were_like_it(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long lines sentence by sentence, and capitals in lower case. Translation is replaced by what was asked for."""
    run = entente.load(base / "run", device="cpu")
    asked: list[str] = []

    def echo(model: object, vocabulary: Vocabulary, sentences: list[str], *_: object) -> list[list[Hypothesis]]:
        asked.extend(sentences)
        return [[Hypothesis(vocabulary.tgt.encode(text), -2.0, "?" not in text)] for text in sentences]

    monkeypatch.setattr(module, "translate", echo)
    long = " ".join(SENTENCES * 5)
    lines = [long, "", "« JE SUIS LÀ. »", "L'ONU ?", long.upper(), "STOP"]
    settings = run.settings.search.model_copy(update={"length_penalty": 0.0})
    results = [best for [best] in translate_lines(run.model, run.vocabulary, lines, settings)]
    small = [sentence.replace("Dr. Petit", "dr. petit") for sentence in SENTENCES * 5]
    assert asked == [*SENTENCES * 5, "", "« Je suis là. »", "L'ONU ?", *small, "Stop"]
    assert [result.text for result in results] == [long, "", "« JE SUIS LÀ. »", "L'ONU ?", long.upper(), "STOP"]
    assert [result.ended for result in results] == [False, True, True, False, False, True]
    assert results[0].log_probability == -40 and results[0].length == sum(
        len(run.vocabulary.tgt.encode(sentence)) + ("?" not in sentence) for sentence in SENTENCES * 5
    )


def test_a_line_is_too_long_only_if_one_of_its_sentences_is(base: Path, tmp_path: Path) -> None:
    run_of = entente.load(base / "run", device="cpu")
    line = " ".join(SENTENCES[:3] * 60)
    with pytest.raises(InputError, match="has .* pieces"):
        run_of.vocabulary.src.refuse_too_long(line, "line")
    (tmp_path / "in.txt").write_text(line)
    ended = run(f"translate checkpoint={base / 'run'} input=in.txt search.beam=1", tmp_path)
    assert ended.code == 0 and ended.out == run_of.translate(line, beam=1) + "\n"
    read, write = os.pipe()
    os.write(write, line.encode())  # less than a pipe holds
    os.close(write)
    piped = run(f"translate checkpoint={base / 'run'} input=/dev/fd/{read} search.beam=1", tmp_path)
    os.close(read)
    assert (piped.code, piped.out) == (0, ended.out), "a pipe can be read only once"
    several = run(f"translate checkpoint={base / 'run'} input=in.txt search.n_best=2 search.beam=2", tmp_path)
    assert several.code == 0 and "in.txt, line 1: " in several.err, "several translations are of whole lines"


def test_a_line_that_is_too_long_stays_empty_and_is_named(base: Path, tmp_path: Path) -> None:
    """A program that writes to a pipe may wait for the lines after it."""
    too_long = "Le chien voit le chat, " * 400
    lines = [SENTENCES[0], too_long, SENTENCES[1]]
    command = f"translate checkpoint={base / 'run'} search.beam=1 threads=1"
    ended = run(command, tmp_path, "\n".join([*lines, ""]).encode())
    first, second, third = ended.out.splitlines()
    assert ended.code == 0 and first and third and not second
    assert re.search(r"standard input, line 2: a sentence of .*; its translation is empty", ended.err)
    ended = run(f"{command} scores=true", tmp_path, "\n".join([*[too_long] * 11, ""]).encode())
    assert ended.out == "\t\ttoo_long\n" * 11 and "11 lines were too long" in ended.err
    (tmp_path / "in.txt").write_text("\n".join(lines))
    of_file = run(f"{command} input=in.txt", tmp_path)
    assert (of_file.code, of_file.out.splitlines()) == (0, [first, "", third]) and "in.txt, line 2: a sentence" in of_file.err


def test_a_pipe_that_is_not_text_is_refused_and_a_character_may_come_in_parts(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"translate checkpoint={base / 'run'} search.beam=1 threads=1"
    for text in (b"Il dort.\n\xe9t\xe9\n", b"Il dort au caf\xc3"):
        refused = run(command, tmp_path, text)
        assert (refused.code, refused.err) == (2, "error: standard input: not UTF-8 text; convert it to UTF-8 first\n")
    whole = run(command, tmp_path, "été\nL'été.".encode("utf-8-sig"))
    monkeypatch.setattr(translate_command, "PIPE", 1)  # byte
    assert run(command, tmp_path, "été\nL'été.".encode("utf-8-sig")).out == whole.out != ""


def test_scores_are_means_over_pieces_and_flags_say_what_to_distrust(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("\n".join([SENTENCES[0], "", "Le zorglub dort."]) + "\n")
    command = f"translate checkpoint={base / 'run'} input=in.txt search.beam=1 search.length_factor=0 search.length_offset=3"
    ended = run(f"{command} scores=true", tmp_path)
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert ended.code == 0 and [row[2] for row in rows] == ["cut", "", "cut unseen"] and rows[1] == ["", "", ""]
    model = entente.load(base / "run", device="cpu")
    search = model.settings.search.model_copy(update={"length_factor": 0.0, "length_offset": 3})
    [[best]] = translate(model.model, model.vocabulary, [SENTENCES[0]], search)
    read = torch.tensor([[BOS, *best.tokens[:-1]]])
    hidden, _ = model.model.decode(read, model.model.encode(torch.tensor(model.vocabulary.encode_src([SENTENCES[0]]))))
    logits = model.model.output(hidden)[0].index_fill(-1, torch.tensor([model.model.pad_id]), -torch.inf)
    expected = sum(logits.log_softmax(-1)[t, piece].item() for t, piece in enumerate(best.tokens)) / 3
    assert float(rows[0][1]) == pytest.approx(expected, abs=1e-4)
    number = Translation("The 20 dogs sleep.", -1.0, 5, True)
    monkeypatch.setattr(
        translate_command, "translate_lines", lambda model, vocabulary, lines, *_, **__: [[number] for _ in lines]
    )
    (tmp_path / "numbers.txt").write_text("Les 200 chiens dorment.\nLes 20 chiens dorment.\n")
    ended = run(f"translate checkpoint={base / 'run'} input=numbers.txt scores=true", tmp_path)
    assert [line.split("\t")[2].replace("unseen", "").strip() for line in ended.out.splitlines()] == ["numbers", ""]
    monkeypatch.undo()
    several = run(f"{command} search.n_best=2 search.beam=2".replace("search.beam=1 ", ""), tmp_path)
    assert "2\t\t" in several.out.splitlines(), "an empty line has no score"


def test_a_program_that_waits_gets_an_answer_to_each_line_and_can_be_stopped(base: Path) -> None:
    command = [sys.executable, "-P", "-m", "entente", "translate", f"checkpoint={base / 'run'}", "search.beam=1", "threads=1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        killer = Timer(60, process.kill)  # if it waits for more input
        killer.start()
        answers, seconds = [], []
        for sentence in SENTENCES:
            process.stdin.write(f"{sentence}\n")
            process.stdin.flush()
            asked = time.monotonic()
            answers.append(process.stdout.readline())
            seconds.append(time.monotonic() - asked)
        process.send_signal(signal.SIGINT)  # while it waits for a line, with standard input open
        assert (process.wait(), process.stderr.read()) == (130, "stopped by SIGINT\n")
        killer.cancel()
    assert all(answer.endswith("\n") for answer in answers) and statistics.median(seconds[1:]) < 1
