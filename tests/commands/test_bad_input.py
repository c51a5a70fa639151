"""Tests that bad input causes one clear error message and leaves no file behind, and that odd sentences are translated."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bad_inputs import BEST, CASES, Case, Result, arguments, content, run, spoil_files
from entente.checkpoint import read, write


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_bad_input_gets_its_lines_and_leaves_nothing_behind(case: Case, folder: Path) -> None:
    spoil_files(case, folder)
    files = content(folder)
    ended = run(case.command, folder)
    lines, patterns = ended.problems.splitlines(), case.line.split("\n")
    assert len(lines) == len(patterns), ended.err
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(f"error: {pattern}", line), f"{line!r} is not {pattern!r}"
    assert ended.code == 2 and content(folder) == files


ODD = {
    "empty": "",
    "spaces": " \t\u00a0 ",
    "emoji": "Le chat 😀👩‍👩‍👧",
    "right to left": "הכלב רואה את החתול",
    "NUL": "Le \0 chat",
    "unknown script": "ꦱꦸꦏꦂ 你好世界",
    "U+2028": "Le chat\u2028voit",
    "lone CR": "Le chat\rvoit",
    "300 words": "Le chat " * 150,
    "unpaired quotes": "\"'«»\\ $x_1$ <s> {a} [b]",
}


@pytest.mark.parametrize("source", [" input=odd.txt", ""], ids=["file", "standard input"])
def test_an_odd_sentence_is_translated_to_one_line(folder: Path, source: str) -> None:
    text = "".join(f"{sentence}\n" for sentence in ODD.values()).encode()
    (folder / "odd.txt").write_bytes(text)
    ended = run(f"translate checkpoint=run search.beam=2 accelerator=cpu{source}", folder, text)
    assert ended.code == 0 and ended.problems == ""
    lines = ended.out.split("\n")
    assert lines.pop() == "" and len(lines) == len(ODD)
    assert [lines[i] for i in (0, 1)] == ["", ""]


def test_one_line_is_a_corpus_that_gives_few_pieces_and_a_group_may_be_left_out(folder: Path) -> None:
    (folder / "train.fr").write_text("Le chat\n")
    (folder / "train.en").write_text("The cat\n")
    ended = run("train FILES data.tokenizer.vocab_size=8000 ~ablation", folder)
    assert (ended.code, ended.err) == (0, "")


def test_an_output_is_replaced_when_it_is_whole(folder: Path) -> None:
    (folder / "out.txt").write_text("old\n")
    (folder / "link.txt").symlink_to("out.txt")
    ended = run("translate checkpoint=run input=in.txt output=link.txt accelerator=cpu", folder)
    assert (ended.code, ended.problems) == (0, "")
    assert (folder / "link.txt").is_symlink() and (folder / "out.txt").read_text().count("\n") == 2
    assert "old" not in (folder / "out.txt").read_text()


def test_commands_that_only_decode_start_quickly(folder: Path) -> None:
    """These commands do not import Lightning, datasets or torch's compiler, which take 2, 0.5 and 1 seconds to import."""
    program = "import sys\nfrom entente.__main__ import main\nmain()\nsys.argv[1:] = ['trace', 'checkpoint=run']\nmain()\n"
    program += "assert not {'lightning', 'datasets', 'torch._dynamo', 'tensorboard', 'sacrebleu', 'scipy'} & set(sys.modules)\n"
    program += "import entente.commands.ablate, entente.commands.compare\nassert 'scipy' not in sys.modules"  # yet
    line = [sys.executable, "-c", program, *arguments("translate checkpoint=run input=in.txt")]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True)
    assert Result(done.returncode, done.stdout, done.stderr).problems == ""


@pytest.mark.parametrize("command", ["TRANSLATE", "OWN", "attention checkpoint=run sentence='Le chat' output=maps"])
def test_a_model_that_has_diverged_is_refused(folder: Path, command: str) -> None:
    content_of_run = read(folder / BEST)
    weight = next(name for name in content_of_run["state_dict"] if name.endswith("key.weight"))
    content_of_run["state_dict"][weight][3, 5] = float("nan")
    write(content_of_run, folder / BEST)
    for name in ("my.fr", "my.en"):
        (folder / name).write_text("Le chat\n")
    files = content(folder)
    ended = run(command, folder)
    assert ended.code == 3 and re.fullmatch(r"diverged: \S+: \S*key\.weight holds values that are not finite; .+\n", ended.err)
    assert (ended.out, content(folder)) == ("", files)


@pytest.mark.parametrize("beam", [1, 3])
def test_predictions_that_overflow_are_no_translation(folder: Path, beam: int) -> None:
    content_of_run = read(folder / BEST)
    for name, weight in content_of_run["state_dict"].items():
        if name.endswith("norm.weight"):
            weight.mul_(1e30)  # all weights stay finite
    write(content_of_run, folder / BEST)
    ended = run(f"TRANSLATE search.beam={beam}", folder)
    assert ended.code == 3 and ended.err.startswith("diverged: the model's log-probabilities are NaN")
    assert not (folder / "out.txt").exists()


def test_cut_translations_are_counted_and_named(folder: Path) -> None:
    limits = "search.length_factor=0 search.length_offset=1"
    ended = run(f"translate checkpoint=run input=in.txt search.beam=1 {limits}", folder)
    lines = (folder / "in.txt").read_text().splitlines()
    cut = [str(number) for number, line in enumerate(lines, 1) if line]
    assert ended.code == 0 and ended.err.startswith(f"{len(cut)} of {len(lines)} translations were cut at the length limit; ")
    assert ended.err.endswith(f" (lines {', '.join(cut)})\n")
    ended = run(f"evaluate checkpoint=run trust_data=true split=valid output=scores {limits}", folder)
    assert ended.code == 0, ended.err
    metrics = json.loads((folder / "scores" / "metrics.json").read_text())["valid"]
    assert metrics["cut"] == metrics["sentences"]
    assert f"valid: {metrics['cut']} of {metrics['cut']} translations were cut" in ended.out
