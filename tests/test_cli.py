"""Tests commands as a user types them. All mistakes are reported at once, on one line each, with exit code 2."""

import copy
import logging
import math
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from omegaconf import OmegaConf

from entente.__main__ import VERBS
from entente.config import command_line as cli
from entente.config.command_line import plain
from entente.config.schema import flat, problems
from entente.config.tables import is_surely_valid
from entente.console.endings import endings
from entente.decoding.search import Search
from entente.errors import InputError, Interrupted
from entente.process import prepare_process
from entente.training.optimiser import Optim
from entente.training.run_directory import LogFile
from entente.training.settings import RunSettings

ROOT = Path(__file__).parents[1]

Ended = tuple[int, list[str], list[dict[str, Any]]]  # exit code, lines on standard error, configurations that were run
Command = Callable[..., Ended]


def check(config: dict[str, Any]) -> list[str]:
    """Returns the problems in the sections `optim` and `search` only. Tests pass this function to `command` as `check`."""
    return [*problems(Optim, "optim", config.get("optim", {})), *problems(Search, "search", config["search"])]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Returns a function that runs a command, as in command("train", "seed=2"). Its argument `act` is the command's body."""

    def called(name: str, *overrides: str, act: Callable[[Any], None] = lambda config: None, **options: Any) -> Ended:
        ran: list[dict[str, Any]] = []
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *overrides])
        code = 0
        try:
            cli.run(lambda config: (ran.append(config), act(config))[1], ROOT / "configs", name, **options)
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            code = ended.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and captured.out == ""
        return code, captured.err.splitlines(), ran

    return called


def errors_of(command: Command, name: str, *overrides: str, **options: Any) -> list[str]:
    """Checks that a command is refused before it runs, and returns its error messages."""
    code, lines, ran = command(name, *overrides, **options)
    assert code == 2 and ran == [] and all(line.startswith("error: ") for line in lines)
    return [line.removeprefix("error: ") for line in lines]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model=birnn", "model.d_hiden=3"], "did you mean model.d_hidden?"),
        (["modle=birnn"], "did you mean model?"),
        (["lr=1"], "did you mean optim.lr?"),
        (["ablation=no_residuals"], "did you mean no_residual?"),
        (["data=grammer"], "did you mean grammar?"),
        (["model={"], "model={"),
        (["modle.d_model=3"], "did you mean model.d_model?"),
        (["seed.x=3"], "seed.x=3: no such setting"),
        (["model.foo=3"], "model.foo=3: no such setting; the settings here are name, d_model, n_heads"),
        (["trainer=null"], "trainer=null: choose one of debug, default"),
        (["model=transfomer"], "model=transfomer: choose one of birnn, modern, transformer; did you mean transformer?"),
        (["+model.d_model=3"], "An item is already at 'model.d_model'"),
        (["~model.foo"], "'model.foo' does not exist"),
        (["seed=1,2"], "seed=1,2: to try several values, add -m; a list is written seed=[...]"),
        (["name=${modle.name}"], "name: Interpolation key 'modle.name' not found"),
        (["--config-dir", "configs", "trainer.max_stepz=4"], "Could not override 'trainer.max_stepz'"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_one_line_with_the_nearest_right_name(overrides: list[str], words: str, command: Command) -> None:
    [line] = errors_of(command, "train", *overrides)
    assert words in line


@pytest.mark.parametrize(
    "arguments",
    [["modle=birnn"], ["model=birnn", "seed=2", "name=mine", "optim.lr=1e-3", "trainer.max_stepz=3"], ["--help"]],
    ids=str,
)
def test_help_and_unknown_keys_are_answered_without_torch(arguments: list[str], tmp_path: Path) -> None:
    program = "import sys\nfrom entente.__main__ import main\ntry:\n    main()\nfinally:\n"
    program += "    assert not {'torch', 'lightning', 'datasets'} & set(sys.modules)"
    command = [sys.executable, "-c", program, "train", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if "--help" in arguments else 2) and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "ablate     Train variants with several seeds"),
        (["--help"], 0, "corpus     Show sentences"),
        (["--version"], 0, "entente 0."),
        (["trian", "model=birnn"], 2, "error: trian: choose one of train, .+; did you mean train\\?"),
        (
            ["corpus", "n=3", "--help", "seed=2"],
            0,
            r"n=3 +number of sentences; a whole number from 0 to\n +1000\n(.|\n)+seed=2",
        ),
        (["help", "train", "model=birnn"], 0, r"model.d_hidden=256 +state width of the decoder"),
        (["trace", "help"], 0, "  entente trace example=true\n"),
        (["train", "--model", "birnn"], 2, "error: --model birnn: settings are written without dashes; write model=birnn\n$"),
        (["train", "seed=2", "--max-steps=5"], 2, "error: --max-steps=5: .+; write trainer.max_steps=5\n$"),
        (["train", "--help", "modle=birnn"], 2, "did you mean model\\?"),
        (["compare", "nowhere"], 2, "error: nowhere: not a suite"),
    ],
    ids=str,
)
def test_one_command_has_every_verb(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "entente", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert re.search(words, done.stdout if code == 0 else done.stderr) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--experimental-rerun=x", "--experimental-r=x"])
def test_a_pickle_that_could_run_code_is_not_run_again(flag: str, command: Command) -> None:
    [line] = errors_of(command, "train", flag)
    assert line.startswith("--experimental-rerun=x: a pickle can run any code")


@pytest.mark.parametrize("name", ["evaluate", "translate", "attention"])
def test_a_checkpoint_must_be_given(name: str, command: Command) -> None:
    assert errors_of(command, name) == ["checkpoint is not set: give it as checkpoint=VALUE"]


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (
            ["model.d_modle=3", "optim.lr=abc", "search.n_best=3", "model={", "trainer.max_stepz=4"],
            [
                "model={: not an override; write KEY=VALUE, with quotes around special characters",
                "model.d_modle=3: no such setting; did you mean model.d_model?",
                "trainer.max_stepz=4: no such setting; did you mean trainer.max_steps?",
                "optim.lr=abc: give a number greater than 0",
                "search.n_best=3 and search.beam=1: n_best must be between 1 and beam",
            ],
        ),
        (
            ["optim.warmup=-1", "data=files", "data.train.src=x", "data.test=null", "data.valid={src: y, tgt: z}", "seeed=1"],
            [
                "seeed=1: no such setting; did you mean seed?",
                "data.train.tgt is not set: give it as data.train.tgt=VALUE",
                "optim.warmup=-1: give a whole number of at least 0",
            ],
        ),
        (
            ["optim.warmup=-1", "data=files", "data.train.src=x", "data.valid.src=y", "data.valid.tgt=z"],
            [
                "data.train.tgt is not set: give it as data.train.tgt=VALUE",
                "optim.warmup=-1: give a whole number of at least 0",
            ],
        ),
        (
            ["optim.lr=0", "optim.beta1=1", "optim.schedule=cosin"],
            [
                "optim.lr=0: give a number greater than 0",
                "optim.beta1=1: give a number of at least 0 and less than 1",
                "optim.schedule=cosin: choose one of inverse_sqrt, cosine, linear, constant; did you mean cosine?",
            ],
        ),
        (["~optim", "search.beam=0"], ["search.beam=0: give a whole number from 1 to 1000"]),
    ],
    ids=["every kind", "missing and unknown", "missing", "values", "a part less"],
)
def test_all_mistakes_are_reported_together(overrides: list[str], lines: list[str], command: Command) -> None:
    assert errors_of(command, "train", *overrides, check=check) == lines


@pytest.mark.parametrize(
    ("overrides", "wrong"),
    [
        (["model=birn", "model.d_hidden=3", "model.d_model=3"], ["model=birn", "model.d_model=3"]),
        (["model.d_hidden=3", "model=birnn", "seeed=1"], ["seeed=1"]),
        (["model=xyz", "model.d_hidden=3", "model.d_model=3", "seeed=1"], ["model=xyz", "seeed=1"]),
        (["experiment=multi30k", "data.root=x", "data.rot=x"], ["experiment=multi30k", "data.rot=x"]),
        (["experiment=xyz", "data.root=x"], ["experiment=xyz"]),
        (["-m", "model=birnn,transfomer", "seed=1,2", "+model.x=range(3)", "sed=1"], ["model=transfomer", "sed=1"]),
    ],
    ids=["nearest choice", "order", "no guess", "a choice that chooses", "a choice without a part", "sweep"],
)
def test_settings_are_checked_by_the_choices_that_were_meant(overrides: list[str], wrong: list[str], command: Command) -> None:
    assert [line.partition(":")[0] for line in errors_of(command, "train", *overrides)] == wrong


def test_a_value_that_is_surely_valid_is_never_refused() -> None:
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = plain(hydra.compose("train"))[0]
    numbers = [-1, 0, 1, 2, 10**9, 0.5, 1.0, math.inf, math.nan]
    values = [*numbers, True, None, "x", "é" * 100, "名" * 99, "", "../x", "cosine", [], {}]
    accepted = 0
    for key in [key for key, value in flat(config) if not isinstance(value, dict)]:
        for value in values:
            given = copy.deepcopy(config)
            part, _, last = key.rpartition(".")
            reduce(lambda node, name: node[name], part.split(".") if part else [], given)[last] = value
            if is_surely_valid(key, "train", given):
                accepted += 1
                RunSettings.of(given)  # raises InputError if `given` is refused
    assert accepted > 100


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_fits_80_columns_and_explains_each_setting(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{verb}.py", "--help"])
    cli.run(lambda config: None, ROOT / "configs", verb)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert len(re.findall(rf"^  .*entente {verb} ", text, re.MULTILINE)) == 3  # examples
    with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        keys = [key for key, value in flat(OmegaConf.to_container(hydra.compose(verb))) if not isinstance(value, dict)]
    shown = re.findall(r"^  ([\w.]+)=", text, re.MULTILINE)
    assert sorted(shown) == sorted(keys)


@pytest.mark.parametrize("flag", ["--help", "--info=config"])
def test_the_help_and_info_of_hydra_still_work(flag: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "entente", "train", flag]  # in another process, because Hydra configures logging
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and re.search(r"max_steps[:=] ?\d+", done.stdout)


def test_an_unknown_package_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--cfg=job", "--package=nosuch"])
    with pytest.raises(SystemExit) as ended:
        cli.run(lambda config: None, ROOT / "configs", "train")
    assert ended.value.code == 2 and capsys.readouterr().err == "package 'nosuch' not found in config\n"


def test_several_runs_are_made_of_several_values(command: Command) -> None:
    code, lines, ran = command("train", "-m", "model=birnn,transformer", "seed=1,2", check=check)
    assert (code, lines) == (0, [])
    assert [(config["model"]["name"], config["seed"]) for config in ran] == [
        ("birnn", 1), ("birnn", 2), ("transformer", 1), ("transformer", 2)
    ]  # fmt: skip


def raise_error(error: BaseException) -> Callable[[object], None]:
    def act(config: object) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (InputError("a file: is\nnot there", "nor this"), 2, ["error: a file: is not there", "error: nor this"]),
        (Interrupted("saved at step 3; continue with\nresume=x"), 75, ["saved at step 3; continue with resume=x"]),
        (KeyboardInterrupt(), 130, []),
    ],
    ids=["wrong", "interrupted", "Ctrl-C"],
)
def test_a_command_ends_with_a_message_and_a_code(error: BaseException, code: int, lines: list[str], command: Command) -> None:
    assert command("train", act=raise_error(error))[:2] == (code, lines)


def test_ctrl_c_while_the_configuration_is_checked_is_no_traceback(command: Command) -> None:
    assert command("train", check=raise_error(KeyboardInterrupt())) == (130, [], [])


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_user(command: Command) -> None:
    with pytest.raises(ValueError, match="a bug"):
        command("train", act=raise_error(ValueError("a bug")))


def write_run(tmp_path: Path, config: str) -> str:
    """Creates a run directory whose config.yaml contains `config`, and returns the directory's path."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(config, encoding="utf-8")
    return str(tmp_path / "run")


STORED = {"seed": 9, "trainer": {"threads": 4, "max_steps": 5}, "search": {"beam": 1}}


def test_a_run_is_resumed_with_its_own_configuration(tmp_path: Path, command: Command) -> None:
    run = write_run(tmp_path, yaml.safe_dump(STORED))
    assert command("train", f"resume={run}", check=check) == (0, [], [{**STORED, "resume": run}])
    [config] = command("train", f"resume={run}", "trainer.threads=2", "output_dir=here")[2]
    assert config == {**STORED, "trainer": {"threads": 2, "max_steps": 5}, "output_dir": "here", "resume": run}


def test_a_launcher_may_resume_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, yaml.safe_dump(STORED))
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", f"resume={run}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"])
    assert cli.CommandLine(ROOT / "configs", "train", check).unused_by_resume() == []


@pytest.mark.parametrize("unknown", [[], ["model.d_hidden=3"]], ids=["", "a setting of another model"])
def test_settings_that_a_resumed_run_would_ignore_are_refused(unknown: list[str], tmp_path: Path, command: Command) -> None:
    run = write_run(tmp_path, yaml.safe_dump(STORED))
    assert errors_of(command, "train", f"resume={run}", "model.n_heads=2", "trainer.threads=2", "+x=1", *unknown) == [
        f"resume={run} continues with that run's own settings; leave out {override}"
        for override in ("model.n_heads=2", "+x=1", *unknown)
    ]


def test_a_stored_configuration_is_checked_too(tmp_path: Path, command: Command) -> None:
    run = write_run(tmp_path, yaml.safe_dump({**STORED, "search": {"beam": 0}}))
    [line] = errors_of(command, "train", f"resume={run}", check=check)
    assert line == f"{run}/config.yaml: search.beam=0: give a whole number from 1 to 1000"


@pytest.mark.parametrize("content", ["", "- 1", "3", "a: [", "\0", "a: &a [*a]\n? {}", None], ids=repr)
def test_a_directory_that_is_no_run_is_refused(content: str | None, tmp_path: Path, command: Command) -> None:
    run = str(tmp_path) if content is None else write_run(tmp_path, content)
    [line] = errors_of(command, "train", f"resume={run}", check=check)
    assert line.startswith(f"resume={run}: ")


@pytest.mark.parametrize("resume", ["null", "auto"])
def test_otherwise_a_run_has_the_configuration_that_was_given(resume: str, command: Command) -> None:
    [config] = command("train", f"resume={resume}", "seed=3")[2]
    assert config["seed"] == 3


@pytest.mark.parametrize(
    "sentence",
    [
        "Jane visite l'Afrique en septembre.",
        "Oui, non : (a) = b ?",
        "Oui, il dort",
        'Il dit "oui".',
        "$ % # @ {a} [b]",
        "'Tis so.",
        "'Bonjour' dit 'Paul'",
        '"Bonjour", dit-il, "ça va"',
        r"Il dit \"oui\" \\",
        "3",
        "null",
    ],
)
def test_a_sentence_is_taken_as_it_is_typed(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    target = sentence if sentence != "null" else None  # null selects the model's own translation
    texts = [f"sentence={sentence}", f"target={sentence}"]
    monkeypatch.setattr(sys, "argv", ["attention.py", "checkpoint=[a,b]", *texts, "output=a b'c.png"])
    cli.run(lambda config: seen.append(config), ROOT / "configs", "attention")
    [config] = seen
    assert isinstance(config, dict)
    assert (config["sentence"], config["target"]) == (sentence, target)
    assert (config["checkpoint"], config["output"]) == (["a", "b"], "a b'c.png")


def test_a_reader_that_closes_the_pipe_causes_no_error() -> None:
    program = "from pathlib import Path\nfrom entente.config.command_line import run\n"
    program += f"run(lambda c: [print('x' * 99) for _ in range(9999)], Path({str(ROOT / 'configs')!r}), 'corpus')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdout and writer.stderr
        assert writer.stdout.readline().startswith("xxx")
        writer.stdout.close()
        assert writer.stderr.read() == ""


def test_a_line_for_the_terminal_is_cut_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), endings():
        raise InputError("\x1b]0;owned\x07" + "x" * 10**6)
    said = capsys.readouterr().err
    assert said.startswith("error: \\x1b]0;owned\\x07xxx") and len(said) < 5000


def test_a_line_of_the_log_is_cut_and_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prepare_process(None)
    with closing(LogFile(tmp_path)):
        logging.getLogger("entente").info("%s: going on\x1b[2J%s", "run", "x" * 10**6)
    for said in (capsys.readouterr().out, (tmp_path / "train.log").read_text()):
        assert "\x1b" not in said and r"run: going on\x1b[2Jxxx" in said and len(said) < 5000
