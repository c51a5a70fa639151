"""Tests that bad input causes one clear error message and leaves no file behind, and that odd sentences are translated."""

import contextlib
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bad_inputs import BEST, CASES, ROOT, WORDS, Case, Result, arguments, content, run, spoil_files
from entente.__main__ import VERBS
from entente.checkpoint import read, write


def run_in_a_process(command: str, folder: Path, stdin: bytes | None = b"") -> Result:
    name, *overrides = arguments(command)
    program = ["-P", "-m", "entente", name] if name in VERBS else [str(ROOT / "scripts" / f"{name}.py")]
    line = [sys.executable, *program, *overrides]
    done = subprocess.run(line, cwd=folder, input=stdin, capture_output=True, check=False)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_bad_input_gets_its_line_and_leaves_nothing_behind(case: Case, folder: Path) -> None:
    spoil_files(case, folder)
    before = content(folder)
    assert_refused(case, run(case.command, folder, case.stdin))
    assert content(folder) == before


# These cases are also run in a separate process. Those that import torch are marked slow, as the import takes seconds.
REAL = [
    pytest.param(case, id=case.what, marks=[pytest.mark.slow] * case.command.startswith(("TRANSLATE", "translate", "ablate")))
    for case in CASES
    if case.real
]


@pytest.mark.parametrize("case", REAL)
def test_bad_input_is_refused_in_a_process_of_its_own(case: Case, folder: Path) -> None:
    spoil_files(case, folder)
    before = content(folder)
    assert_refused(case, run_in_a_process(case.command, folder, case.stdin))
    assert content(folder) == before


def assert_refused(case: Case, ended: Result) -> None:
    assert "Traceback" not in ended.err
    lines = ended.err.split("\n")
    assert lines.pop() == ""
    patterns = case.line.split("\n")
    assert len(lines) == len(patterns), ended.err
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(f"error: {pattern}", line), f"{line!r} is not {pattern!r}"
    assert ended.code == 2


ODD = {
    "empty": "",
    "spaces": " \t\u00a0 ",
    "emoji": "Le chat 😀👩‍👩‍👧",
    "right to left": "הכלב רואה את החתול",
    "NUL": "Le \0 chat",
    "unknown script": "ꦱꦸꦏꦂ 你好世界",
    "U+2028": "Le chat\u2028voit",
    "lone CR": "Le chat\rvoit",
    "CRLF": "Le chat voit.\r",
    "300 words": "Le chat " * 150,
    "unpaired quotes": "\"'«»\\ $x_1$ <s> {a} [b]",
}


@pytest.mark.parametrize("given", [" input=odd.txt", "", " input="], ids=["file", "standard input", "no file"])
def test_an_odd_sentence_is_translated_to_one_line(folder: Path, given: str) -> None:
    text = "".join(f"{sentence}\n" for sentence in ODD.values()).encode()
    (folder / "odd.txt").write_bytes(text)
    ended = run(f"translate checkpoint=run search.beam=2 accelerator=cpu{given}", folder, text)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.split("\n")
    assert lines.pop() == "" and len(lines) == len(ODD)
    assert [lines[i] for i in (0, 1)] == ["", ""]


@pytest.mark.parametrize("what", [what for what in ODD if what not in ("empty", "spaces", "NUL")])
def test_the_attention_of_an_odd_sentence_is_drawn(folder: Path, what: str) -> None:
    ended = run(f"attention checkpoint=run sentence={shlex.quote(ODD[what][:60])} layer=1 output=attention.png", folder)
    assert (ended.code, ended.err) == (0, "")
    _, translation, file = ended.out.rstrip("\n").split("\n")
    assert translation.startswith("transformer: ") and file == "attention.png"
    assert (folder / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("bad", [WORDS.encode(), b"\xff"], ids=["too long", "no text"])
def test_the_lines_before_a_bad_one_are_translated(folder: Path, bad: bytes) -> None:
    before = b"Le chat voit le chien.\n\n" * 600  # more lines than the command translates at a time
    ended = run("translate checkpoint=run search.beam=1 accelerator=cpu", folder, before + bad + b"\nun\n")
    assert ended.code == 2 and ended.err.startswith("error: standard input, line 1201: ")
    assert ended.out.count("\n") == 1200


@pytest.mark.parametrize("side", ["train", "valid"])
def test_one_line_is_a_corpus(folder: Path, side: str) -> None:
    (folder / f"{side}.fr").write_text("Le chat\n")
    (folder / f"{side}.en").write_text("The cat\n")
    ended = run("train FILES data.tokenizer.vocab_size=8000", folder)
    assert (ended.code, ended.err) == (0, "")


def test_a_vocabulary_has_as_many_pieces_as_the_text_gives(folder: Path) -> None:
    ended = run("train FILES data.tokenizer.vocab_size=1000000", folder)
    assert ended.code == 0 and "this text cannot fill a vocabulary of 1000000 pieces" in ended.out


def test_an_output_is_replaced_when_it_is_whole(folder: Path) -> None:
    (folder / "link.txt").symlink_to("in.txt")
    ended = run("translate checkpoint=run input=link.txt output=link.txt accelerator=cpu", folder)
    assert (ended.code, ended.err) == (0, "")
    assert (folder / "link.txt").is_symlink() and (folder / "in.txt").read_text().count("\n") == 2
    assert "Le chat" not in (folder / "in.txt").read_text()
    (folder / "loop.txt").symlink_to("loop.txt")
    assert run("translate checkpoint=run input=in.txt output=loop.txt", folder).code == 0
    assert (folder / "loop.txt").read_text().count("\n") == 2
    assert run("translate checkpoint=run input=in.txt output=/dev/null", folder).code == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "command", ["translate checkpoint=run input=in.txt", pytest.param("trace checkpoint=run", marks=pytest.mark.slow)]
)
def test_commands_that_only_decode_start_quickly(folder: Path, command: str) -> None:
    """These commands do not import Lightning, datasets or torch's compiler, which take 2, 0.5 and 1 seconds to import."""
    name, *overrides = arguments(command)
    program = "import sys\nfrom entente.__main__ import main\nmain()\n"
    program += "assert not {'lightning', 'datasets', 'torch._dynamo', 'tensorboard', 'sacrebleu'} & set(sys.modules)"
    line = [sys.executable, "-c", program, name, *overrides]
    assert subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_in_one_line(folder: Path) -> None:
    ended = run("translate checkpoint=run input=in.txt output=/dev/full", folder)
    assert ended.code == 2
    assert ended.err == "error: output=/dev/full: cannot be written (No space left on device); give another path\n"


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("command", ["TRANSLATE", "OWN", "attention checkpoint=run sentence='Le chat' output=maps"])
def test_a_model_that_has_diverged_is_refused(folder: Path, command: str, value: str) -> None:
    whole = read(folder / BEST)
    weight = next(name for name in whole["state_dict"] if name.endswith("key.weight"))
    whole["state_dict"][weight][3, 5] = float(value)
    write(whole, folder / BEST)
    for name in ("my.fr", "my.en"):
        (folder / name).write_text("Le chat\n")
    before = content(folder)
    ended = run(command, folder)
    assert ended.code == 3 and re.fullmatch(r"diverged: \S+: \S*key\.weight holds values that are not finite; .+\n", ended.err)
    assert (ended.out, content(folder)) == ("", before)


@pytest.mark.parametrize("beam", [1, 3])
def test_predictions_that_overflow_are_no_translation(folder: Path, beam: int) -> None:
    whole = read(folder / BEST)
    for name, weight in whole["state_dict"].items():
        if name.endswith("norm.weight"):
            weight.mul_(1e30)  # all weights stay finite
    write(whole, folder / BEST)
    ended = run(f"TRANSLATE search.beam={beam}", folder)
    assert ended.code == 3 and ended.err.startswith("diverged: the model's log-probabilities are NaN")
    assert not (folder / "out.txt").exists()


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("output", ["run", "./run", "link", "scores/../run"])
def test_scores_are_not_written_into_a_run(folder: Path, output: str, finished: bool) -> None:
    (folder / "link").symlink_to("run")
    (folder / "scores").mkdir()
    if not finished:
        (folder / "run" / "metrics.json").unlink()
    before = content(folder)
    ended = run(f"evaluate checkpoint=run split=valid output={output} accelerator=cpu", folder)
    assert ended.code == 2
    line = "error: output=[^:]+: this is the directory of a run, which keeps its own scores; give another folder\n"
    assert re.fullmatch(line, ended.err)
    assert content(folder) == before


@contextlib.contextmanager
def open_pipes(*texts: bytes) -> Iterator[list[str]]:
    """Yields the paths of pipes that hold the texts. Like the pipe of a shell's <(...), each can be read only once."""
    with contextlib.ExitStack() as stack:
        paths = []
        for text in texts:
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            with os.fdopen(writer, "wb") as file:
                file.write(text)
            paths.append(f"/dev/fd/{reader}")
        yield paths


@pytest.mark.parametrize("stored", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_files_to_score_may_be_pipes(folder: Path, stored: Callable[[bytes], bytes]) -> None:
    src, tgt = (b"un chat\n\n\xc3\xa9t\xc3\xa9\nchien\n", b"a cat\nb\nsummer\ndog\n")
    (folder / "my.fr").write_bytes(src)
    (folder / "my.en").write_bytes(tgt)
    assert run("OWN", folder).code == 0
    with open_pipes(stored(src), stored(tgt)) as (one, other):
        ended = run(f"evaluate checkpoint=run src={one} tgt={other} output=piped", folder)
        assert (ended.code, ended.err) == (0, "")
    [(_, expected)] = json.loads((folder / "scores" / "metrics.json").read_text()).items()
    [(_, scored)] = json.loads((folder / "piped" / "metrics.json").read_text()).items()
    assert {key: value for key, value in scored.items() if "seconds" not in key} == {
        key: value for key, value in expected.items() if "seconds" not in key
    }
    with open_pipes(stored(f"un\n\n{WORDS}\n".encode()), stored(b"one\n\nthree\n")) as (one, other):
        ended = run(f"evaluate checkpoint=run src={one} tgt={other}", folder)
    assert ended.code == 2 and re.match(rf"error: {one}, line 3: a sentence of 10,000 words", ended.err)


def test_a_text_to_translate_may_be_a_pipe(folder: Path) -> None:
    text = (folder / "in.txt").read_bytes()
    expected = run("translate checkpoint=run input=in.txt search.beam=2", folder).out
    with open_pipes(text, text + WORDS.encode() + b"\nun\n") as (good, bad):
        assert run(f"translate checkpoint=run search.beam=2 input={good}", folder) == (0, expected, "")
        ended = run(f"translate checkpoint=run search.beam=2 input={bad}", folder)
    assert (ended.code, ended.out) == (2, expected) and ended.err.startswith(f"error: {bad}, line 3: ")


@pytest.mark.parametrize("side", ["src", "tgt"])
def test_a_pipe_with_more_lines_than_the_other_file_is_not_read_to_its_end(folder: Path, side: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"un\n" * 13_000)  # the pipe stays open, so that reading to its end would block
    try:
        given = {"src": "train.fr", "tgt": "train.en", side: f"/dev/fd/{reader}"}
        ended = run(f"evaluate checkpoint=run src={given['src']} tgt={given['tgt']}", folder)
    finally:
        os.close(writer)
        os.close(reader)
    assert ended.code == 2 and f"error: /dev/fd/{reader} has more lines than train." in ended.err
