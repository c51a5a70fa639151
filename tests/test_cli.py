"""Commands as a user gives them: what is wrong becomes one line and exit code 2."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from entente import cli, inference
from entente.errors import InputError

ROOT = Path(__file__).parents[1]


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, *overrides: str) -> str:
    """What the command line says when it refuses, having composed nothing to run."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *overrides])
    with pytest.raises(SystemExit) as ended:
        cli.run(lambda config: None, ROOT / "configs", name)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model=transfomer"], "did you mean transformer?"),
        (["model=birnn", "model.d_hiden=3"], "did you mean model.d_hidden?"),
        (["model.d_modle=3"], "did you mean model.d_model?"),
        (["modle=birnn"], "did you mean model?"),
        (["lr=1"], "did you mean optim.lr?"),
        (["ablation=no_residuals"], "did you mean no_residual?"),
        (["data=grammer"], "did you mean grammar?"),
        (["trainer.maxsteps=1"], "did you mean trainer.max_steps?"),
        (["model={"], "model={"),
        (["data=files"], "data.train.src is not set"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_nearest_right_name(
    overrides: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert words in refused(capsys, monkeypatch, "train", *overrides)


@pytest.mark.parametrize("name", ["evaluate", "translate", "attention"])
def test_a_checkpoint_must_be_given(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "checkpoint is not set" in refused(capsys, monkeypatch, name)


@pytest.mark.parametrize(
    "sentence",
    [
        "Jane visite l'Afrique en septembre.",
        "Oui, non : (a) = b ?",
        'Il dit "oui".',
        "$ % # @ {a} [b]",
        "'Tis so.",
        "3",
        "null",
    ],
)
def test_a_sentence_is_taken_as_it_is_typed(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "argv", ["attention.py", "checkpoint=[a,b]", f"sentence={sentence}", "output=a b'c.png"])
    cli.run(lambda config: seen.append(config), ROOT / "configs", "attention")
    [config] = seen
    assert isinstance(config, dict)
    assert (config["sentence"], config["checkpoint"], config["output"]) == (sentence, ["a", "b"], "a b'c.png")


def test_a_refusal_of_the_command_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: dict[str, object]) -> None:
        raise InputError("a file: is\nnot there")

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as ended:
        cli.run(refuse, ROOT / "configs", "train")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: a file: is not there\n"


def test_text_that_is_not_utf8_on_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("un\nété\n".encode("latin-1"))))
    lines = inference._standard_input()
    assert next(lines) == "un"
    with pytest.raises(InputError, match="standard input, line 2: not UTF-8"):
        next(lines)


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = "from pathlib import Path\nfrom entente.cli import run\n"
    program += f"run(lambda c: [print('x' * 99) for _ in range(9999)], Path({str(ROOT / 'configs')!r}), 'show_corpus')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdout and writer.stderr
        assert writer.stdout.readline().startswith("xxx")
        writer.stdout.close()
        assert writer.stderr.read() == ""


def test_a_real_command_exits_with_2_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "translate.py"), "checkpoint=nowhere.ckpt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: checkpoint=nowhere.ckpt: no such file, and no run with checkpoints/best.ckpt in it\n"
    assert list(tmp_path.iterdir()) == []
