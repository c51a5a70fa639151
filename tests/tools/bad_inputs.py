"""Defines user mistakes and the error messages that they must cause.

`python tests/tools/bad_inputs.py [FILE]` prints a table of the mistakes and messages, and writes it to FILE if one is given.
Each case gets its own folder with a small corpus and a trained run, may damage or add files there, and then runs a command.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch

from entente import cli
from entente.checkpoint import ENTRY, read, write
from entente.console import exit_codes
from tiny import write_corpus

BEST = "run/checkpoints/best.ckpt"
TRAIN, VALID = "data.train.src=train.fr data.train.tgt=train.en", "data.valid.src=valid.fr data.valid.tgt=valid.en"
# These settings end training after two steps, in case a mistake goes unnoticed and training starts.
QUICK = "data.tokenizer.vocab_size=340 model.d_model=32 model.n_heads=2 model.n_layers=1 model.d_ff=48 trainer.max_steps=2"
QUICK += " trainer.validate_every=1 trainer.accelerator=cpu trainer.threads=1 search.length_factor=1"
QUICK += " views.attention=false views.heads=0"
SHORT = {
    "FILES": f"data=files recipe=none {TRAIN} {VALID} {QUICK}",
    "PAIRS": f"data=files recipe=none {VALID} {QUICK}",  # used together with data.train=FILE
    "INIT": f"train data=files recipe=none {TRAIN} {VALID} init=run",
    "OWN": "evaluate checkpoint=run src=my.fr tgt=my.en output=scores",
    "TRANSLATE": "translate checkpoint=run input=in.txt output=out.txt",
    "MINE": "ablate --config-dir=own suite=[baseline,mine]",
}

Action = Callable[[], object]


class Case(NamedTuple):
    what: str
    command: str
    line: str  # one regular expression per line of the error message, for the text after "error: "
    spoil: Action | tuple[Action, ...] = ()  # called in the folder before the command is run


class Result(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def problems(self) -> str:
        """What was printed on standard error, without warnings of cut translations and unseen words, as after 2 steps."""
        expected = re.compile(" cut at the length limit; | not seen in training: ")
        return "".join(line for line in self.err.splitlines(keepends=True) if not expected.search(line))


def arguments(command: str) -> list[str]:
    """Returns the words of a command, with the abbreviations of SHORT expanded."""
    for name, text in SHORT.items():
        command = re.sub(rf"\b{name}\b", text, command)
    return shlex.split(command)


def run(command: str, folder: Path, stdin: bytes = b"") -> Result:
    """Runs a verb in this process, with `folder` as the working directory. Returns its exit code and output."""
    name, *overrides = arguments(command)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    code: object = 0
    with (
        contextlib.chdir(folder),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            with exit_codes():
                cli.main([name, *overrides])
        except SystemExit as ended:
            code = ended.code
    out.flush()
    return Result(code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


def prepare(folder: Path) -> Path:
    """Creates `folder`, writes a corpus, a text to translate and a trained run into it, and returns it."""
    folder.mkdir()
    write_corpus(folder)
    (folder / "in.txt").write_text("Le chat voit le chien.\nLe chien suit le garçon.\n", encoding="utf-8")
    ended = run("train FILES name=run output_dir=. checkpoint.every=1", folder)
    assert (ended.code, ended.err) == (0, ""), ended
    shutil.rmtree(folder / "cache")
    return folder


def spoil_files(case: Case, folder: Path) -> None:
    with contextlib.chdir(folder):
        for act in case.spoil if isinstance(case.spoil, tuple) else (case.spoil,):
            act()


def content(folder: Path) -> dict[str, bytes | None]:
    """Returns the bytes of each file below the folder, and None for each folder. The cache is left out, since a refused command
    may fill it, and so is `outputs` if it is empty."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts}
    if not any(name.startswith("outputs/") for name in paths):
        paths.pop("outputs", None)
    return {name: path.read_bytes() if path.is_file() else None for name, path in paths.items()}


def put(name: str, data: bytes | str) -> Action:
    def act() -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return act


def both(name: str, src: str, tgt: str) -> tuple[Action, Action]:
    return put(f"{name}.fr", src), put(f"{name}.en", tgt)


def mine(text: str) -> Action:
    """Returns an action that writes an ablation called `mine`."""
    return put("own/ablation/mine.yaml", text)


def folder(name: str) -> Action:
    def act() -> None:
        Path(name).unlink(missing_ok=True)
        Path(name).mkdir()

    return act


def link(name: str, target: str) -> Action:
    def act() -> None:
        Path(name).parent.mkdir()
        Path(name).symlink_to(target)

    return act


def name_url_as_corpus() -> None:
    """Changes the configuration in the checkpoint so that its corpus is at a URL."""
    stored = read(Path(BEST))
    stored[ENTRY]["config"]["data"] = URL_DATA
    write(stored, Path(BEST))


WORDS = "chat " * 10_000
TOO_LONG = r"a sentence of 10,000 words has [\d,]+ pieces, more than the 1,024 allowed; split it"
NO_CHECKPOINT = "not a checkpoint of this program, or a damaged one; use another copy, or train the model again"
FOLDER = r"give the name of a folder under output_dir \(.+\)"
TRUST = "add trust_data=true to read the corpus that this checkpoint names, or give your own text"
FILES_NAMED = (
    "data.name=files, data.train.src=train.fr, data.train.tgt=train.en, data.valid.src=valid.fr, data.valid.tgt=valid.en"
)
ALIGNED = "each line must be the translation of the same line in the other file"
WHOLE = "a whole number of at least"
NO_PAIR = r"no sentence pair is left after dropping empty, over-long and uneven ones"
NOT_TEXT = "not UTF-8 text; convert it to UTF-8 first"
HELP = "no such setting; --help lists the settings"
PACKAGE = "# @package _global_\n"
SUITE_SETS = "a suite sets it for each run; leave it out, and set suite and seeds"
LATIN = "un\nété\n".encode("latin-1")
URL_DATA = {
    **{"name": "multi30k", "root": "http://127.0.0.1:9/x", "tests": ["test_2016_flickr"], "src": "fr", "tgt": "en"},
    "tokenizer": {"vocab_size": 300},
}

CASES = [
    # Files of text.
    Case("no such file", "train FILES data.train.src=trian.fr", r"trian\.fr: No such file or directory"),
    Case("a folder in place of a file", "train FILES", r"train\.fr: Is a directory", folder("train.fr")),
    Case("an empty file", "train FILES", r"train\.fr: the file is empty", put("train.fr", "")),
    Case("unequal numbers of lines", "train FILES", rf"train\.en has more lines .*than .+: {ALIGNED}", put("train.fr", "un\n")),
    Case("Latin-1 text", "train FILES", rf"valid\.fr, line 2: {NOT_TEXT}", put("valid.fr", LATIN)),
    Case("files without text", "train FILES", rf"valid\.fr and valid\.en: {NO_PAIR}", both("valid", "\n \n", "a\nb\n")),
    Case("10,000 words in training", "train FILES", rf"train\.fr and train\.en: {NO_PAIR}", both("train", WORDS, WORDS)),
    Case("10,000 words in validation", "train FILES", f"valid, src, 'chat .*': {TOO_LONG}", both("valid", WORDS, "a")),
    # Files of pairs.
    Case("TSV without a heading", "train PAIRS data.train=x.tsv", r"x\.tsv: no column is named .+", put("x.tsv", "un\tone\n")),
    Case("Multi30k that is not there", f"train data=multi30k data.root=. {QUICK}", r".*train\.fr\.gz.*"),
    # Settings.
    Case(
        "mistakes of three kinds in three sections",
        "train trainer.max_stpes=9 optim.lr=fast search.n_best=3",
        r"optim\.lr=fast: give a number greater than 0"
        "\n"
        r"trainer\.max_stpes=9: no such setting; did you mean trainer\.max_steps\?"
        "\n"
        r"search\.n_best=3 and search\.beam=1: n_best must be between 1 and beam",
    ),
    Case(
        "a mistyped model and settings of that model",
        "train model=birn model.d_hidden=3 model.d_hiden=4 seeed=1",
        "model=birn: choose one of birnn, .+; did you mean birnn\\?\nseeed=1: no such setting; did you mean seed\\?",
    ),
    Case("a key of another section", "train lr=1", r"lr=1: no such setting; did you mean optim\.lr\?"),
    Case(
        "an ablation of the other model",
        "train ablation=no_residual model=birnn",
        r"model\.residual=\[\]: only model=transformer has this setting",
    ),
    Case("an unknown key added with +", "train +foo=1", f"foo=1: {HELP}"),
    Case(
        "arguments without =",
        "train seed birnn sed=1",
        r"""seed: write KEY=VALUE
birnn: write KEY=VALUE; did you mean model=birnn\?
sed=1: no such setting; did you mean seed\?""",
    ),
    Case("an unknown flag", "train --nosuch", "unrecognized arguments: --nosuch; the command takes --help, .+"),
    Case("flags that exclude each other", "train --cfg job -m seed=1,2", "--cfg job and -m: give one of them"),
    Case(
        "one's own text without data=files", "train data.train=in.txt", "data.train=in.txt: for your own text, add data=files"
    ),
    Case("a word for a section", "train optim=adam", "optim=adam: give its settings by name, such as optim.optimizer=VALUE"),
    Case(
        "a dictionary for a list",
        "train 'model.residual={self: 1}'",
        "model.residual={self: 1}: give a list of self, cross, ff",
    ),
    Case("a missing folder of configurations", "train --config-dir=gone", "--config-dir=gone: no such folder"),
    Case("an unknown verb", "trian model=birnn", "trian: choose one of train, .+; did you mean train\\?"),
    Case(
        "a suite without a baseline",
        "ablate suite=[no_residual,unscaled]",
        r"suite=\[no_residual, unscaled\]: has no baseline, .+",
    ),
    Case("several values without -m", "train seed=1,2", "seed=1,2: give a whole number of at least 0 .+"),
    Case("a removed key", "train ~name", "name is not set: give it as name=VALUE"),
    Case("an absent accelerator", "translate checkpoint=run input=in.txt accelerator=tpu", "accelerator=tpu: .+ has none; .+"),
    Case("an unknown accelerator", "train trainer.accelerator=gpus", r"trainer\..+accelerator=gpus .+ Lightning refuses .+"),
    Case("an extra text without target", "train FILES +data.extra.x.src=train.fr", "data.extra.x: give either .+"),
    Case("the Tatoeba experiment without its file", "train experiment=tatoeba", "data.train is not set: give it as .+"),
    # Impossible sizes.
    Case("two lengths", "train FILES trainer.epochs=2", r"trainer\.max_steps=2 and trainer\.epochs=2: give one of them"),
    Case("too small a vocabulary", "train FILES data.tokenizer.vocab_size=5", r"data\.tokenizer\.vocab_size=5 is too .+"),
    Case(
        "a split of 150%",
        "train FILES data.split.valid=1.5",
        r"data\.split\.valid=1\.5: give .+ or a number .+ less than 1 or null",
    ),
    # Runs.
    Case("a file as output_dir", "train FILES output_dir=in.txt", r"in\.txt.+: Not a directory"),
    Case("an unusable tokenizer", "train FILES evaluation.tokenize=ja-mecab", r"evaluation\.tokenize=ja-mecab: .+"),
    Case("a run's name that is an escape sequence", "train FILES name='a\x1b[2Jb'", f"name=.+: {FOLDER}"),
    Case("resuming something that is not a run", "train resume=in.txt", r"resume=in\.txt: not a run's directory .+"),
    Case(
        "a damaged config.yaml", "train resume=run", r"run/config\.yaml, .+: not valid YAML .+", put("run/config.yaml", "a: [")
    ),
    Case(
        "a config.yaml of another program",
        "train resume=run",
        "run/config.yaml: name is not set: .+\nrun/config.yaml: a=1: no such setting; .+",
        put("run/config.yaml", "a: 1"),
    ),
    Case(
        "a config.yaml with a wrong value",
        "train resume=run",
        r"run/config\.yaml: seed=x: give a whole number .+",
        put("run/config.yaml", "name: run\nseed: x\ntrainer: {}\n"),
    ),
    # Starting from another model.
    Case("another model", "INIT model=birnn", "model=birnn: the model of init=run is a transformer; give model=transformer"),
    Case("another form of the model", "INIT model=modern", "model=modern: .+ is a transformer; give model=transformer"),
    Case("another width", "INIT model.d_model=64", "model.d_model=64: .+ have 32; leave model.d_model out"),
    Case("another vocabulary", "INIT data.tokenizer.vocab_size=7", "data.tokenizer.vocab_size=7: .+ have 340; .+"),
    Case("an ablation of the model", "INIT ablation=one_head", "model.n_heads=1: .+ have 2; .+"),
    Case("nothing to start from", "INIT init=nowhere", "nowhere: no such checkpoint, .+"),
    # Checkpoints.
    Case("a missing checkpoint setting", "translate", "checkpoint is not set: give it as checkpoint=VALUE"),
    Case("no such checkpoint", "TRANSLATE checkpoint=gone", "gone: no such checkpoint, .+"),
    Case("a checkpoint that is text", "TRANSLATE checkpoint=in.txt", rf"in\.txt: {NO_CHECKPOINT}"),
    Case("a corpus that is not trusted", "evaluate checkpoint=run output=scores", f"checkpoint=run: {TRUST}: {FILES_NAMED}"),
    Case(
        "a checkpoint that would fetch from a URL without permission",
        "evaluate checkpoint=run output=scores",
        rf"checkpoint=run: {TRUST}: data\.name=multi30k, data\.root=http:.+",
        name_url_as_corpus,
    ),
    Case("a pair that is not trusted", "attention checkpoint=run pair=valid/1", f"checkpoint=run: {TRUST}: {FILES_NAMED}"),
    # Scores.
    Case("an unknown split", "evaluate checkpoint=run trust_data=true split=tset", "split=tset: this corpus has .+"),
    Case("an empty split list", "evaluate checkpoint=run split=[]", r"split=\[\]: give text or a list .+"),
    Case(
        "a missing file of the corpus",
        "evaluate checkpoint=run trust_data=true output=scores",
        r"valid\.fr: No .+",
        Path("valid.fr").unlink,
    ),
    Case(
        "a source file without a target file, and other settings that need another",
        "evaluate checkpoint=run src=valid.fr occlusion=5",
        "src and tgt go together: give both files, src=FILE tgt=FILE\n"
        "occlusion=5 needs attention=true; add it, or leave out occlusion",
    ),
    Case("a split and files", "OWN split=valid", "src=my.fr has no splits: leave out either src and tgt, or split"),
    Case("a pair and a sentence", "attention checkpoint=run pair=valid/1 sentence=Oui", "pair=valid/1 has a sentence and a .+"),
    Case("a sentence for an example", "trace example=true sentence=Oui", "the example has two sentences of its own: .+"),
    Case("a sentence that is not UTF-8", "trace checkpoint=run sentence=\udce9t\udce9", "sentence: not UTF-8 text"),
    Case(
        "interventions that are not dictionaries",
        "evaluate checkpoint=run output=x intervene=[mute]",
        r"intervene=\[mute\]: give a list of {KEY: VALUE} or a list of lists of {KEY: VALUE}",
    ),
    Case("importance of a file", "importance checkpoint=run/checkpoints/best.ckpt trust_data=true", ".+; give output=FOLDER.*"),
    Case("scores into a run", "evaluate checkpoint=run output=x/y", "output=x/y: .+ of a run, .+", link("x/y", "../run")),
    Case("two files without a complete pair", "OWN", rf"my\.fr and my\.en: {NO_PAIR}", both("my", "un\n\n", "\ntwo\n")),
    # Exports.
    Case("a format that is not known", "export checkpoint=run format=onnx output=new", "format=onnx: choose one of .+"),
    Case(
        "an export without sentences",
        "export checkpoint=run format=huggingface output=new",
        "checkpoint=run: there are no sentences to compare; give input=FILE",
        Path("run/translations/valid.tsv").unlink,
    ),
    Case("an export over a folder", "export checkpoint=run format=huggingface output=run", "output=run: exists already; .+"),
    Case(
        "an export with a missing input file",
        "export checkpoint=run format=huggingface output=new input=none",
        "none: No such .+",
    ),
    Case(
        "int8 for the other format", "export checkpoint=run format=huggingface quantization=int8 output=a/b", ".+=int8: only .+"
    ),
    # Pages.
    Case("a page of a file", "page run/checkpoints/best.ckpt", ".+: not a run's directory; give output=FILE .+"),
    Case("a page of a file without sentences", "page run/checkpoints/best.ckpt output=new.html", ".+; give input=FILE.*"),
    Case("a page of three models", "page run run run", "runs=.+"),
    # Translations.
    Case("a missing text to translate", "TRANSLATE input=gone.txt", r"gone\.txt: No such file or directory"),
    Case("an empty file to translate", "TRANSLATE", r"in\.txt: the file is empty", put("in.txt", "")),
    Case("10,000 words for a page", "page run input=in.txt", r"in\.txt: has no sentence of .+", put("in.txt", WORDS)),
    Case("a text as its own translation", "TRANSLATE output=./in.txt", r"output=\./in\.txt: this is the input; .+"),
    Case("a folder as output", "TRANSLATE output=run", "run: Is a directory"),
    Case(
        "mistakes of four kinds in a command without Hydra",
        "translate inptu=in.txt search.beam=x threads={ run",
        r"run: write KEY=VALUE; did you mean checkpoint=run\?"
        "\n"
        r"checkpoint is not set: give it as checkpoint=VALUE"
        "\n"
        r"threads={: give a whole number from 1 to 4096 or null"
        "\n"
        r"search\.beam=x: give a whole number from 1 to 1000 or null"
        "\n"
        r"inptu=in\.txt: no such setting; did you mean input\?",
    ),
    # Attention.
    Case("an empty sentence", "attention checkpoint=run sentence='  '", "the sentence is empty: give one"),
    Case("an attention map of 10,000 words", f"attention checkpoint=run sentence='{WORDS}'", f"sentence: {TOO_LONG}"),
    Case("a trace without a checkpoint", "trace", "checkpoint and example: set one of them, .+"),
    # Suites, and comparisons of runs.
    Case("an unknown suite", "ablate suite=quik", r"suite=quik: choose one of quick, .+, or a list such as .+"),
    Case("an unknown variant", "ablate suite=[baseline,no_residul]", "no_residul: .+; did you mean no_residual\\?"),
    Case("no seeds and no jobs", "ablate seeds=[] jobs=0", rf"seeds=\[\]: .+ 1 or more .+" "\n" f"jobs=0: give {WHOLE} 1"),
    Case("no number of threads for a suite", "ablate trainer.threads=two suite=[baseline]", r"trainer\.threads=two: give .+"),
    Case("a seed for a suite", "ablate seed=3 ablation=no_norm", f"seed=3: {SUITE_SETS}\nablation=no_norm: {SUITE_SETS}"),
    Case("a suite outside the output folder", "ablate name=../place", rf"name=\.\./place: {FOLDER}"),
    Case("a suite without variants", "ablate suite=mine +suites.mine={}", r"suites\.mine\.variants is not set: .+"),
    Case(
        "an ablation without a @package line",
        "MINE",
        r"ablation=mine: ablation\.model\.norm=none: no such setting; .+",
        mine("model:\n  norm: none\n"),
    ),
    Case("an ablation that is not YAML", "MINE", r".+mine\.yaml, .+: not valid YAML .+", mine(f"{PACKAGE}model: [\n")),
    Case(
        "an ablation of an unknown setting",
        "MINE",
        r"ablation=mine: model\.scal=none: no such setting; .+",
        mine(f"{PACKAGE}model: {{scal: none}}\n"),
    ),
    Case("a comparison without runs", "compare", "runs is not set: give it as runs=VALUE"),
    Case("a missing suite", "compare nowhere", "nowhere: .+"),
    Case("a comparison of one run", "compare run", "run: .+"),
    Case(
        "a comparison with a folder and an unfinished run",
        "compare own unfinished",
        ".+own: not a finished run, since .+\n.+unfinished: not a finished run, since it has no metrics.json",
        (put("own/x", ""), put("unfinished/config.yaml", "seed: 1\n")),
    ),
    Case("zero samples", "compare run samples=0", "samples=0: give a whole number from 1 to 100000"),
    # The `data` and `corpus` commands.
    Case("data with a setting of training", f"data data=files {TRAIN} optim.lr=1", rf"optim\.lr=1: {HELP}"),
    Case("data from a missing file", "data data=files data.train=pairs.tsv output=a/a.tsv", r"pairs\.tsv: No such file .+"),
    Case("a clean text in a folder", f"data data=files {TRAIN} output=lists", r"output=lists: give a file .+ \.tsv, .+"),
    Case("a clean text in place of a list", f"data data=files {TRAIN} output=removed.tsv", ".+, and is not removed.tsv"),
    Case(
        "a clean text over a text", "data data=files data.train=x.tsv output=x.tsv", ".+ would .+", put("x.tsv", "fr\ten\na\tb")
    ),
    Case("another text's list", f"data data=files {TRAIN} output=a.tsv", "removed.tsv: belongs .+", put("removed.tsv", "")),
    Case(
        "a clean text of two texts",
        f"data data=files {TRAIN} data.extra.more=x.tsv output=a.tsv",
        r"output with data\.extra: .+",
    ),
    Case("an unknown rule", f"data data=files {TRAIN} rules=[sound]", r"rules=\[sound\]: give a list of empty, .+ or null"),
    Case(
        "a negative number of sentences of no split",
        "corpus n=-1 split=tset",
        "n=-1: give a whole number from 0 to 1000\n"
        "split=tset: choose one of train, valid, test, test_long, test_compositional; did you mean test\\?",
    ),
]


PAGE = """# Bad inputs and their error messages

This page is written by `python tests/tools/bad_inputs.py FILE`, and `tests/commands/test_bad_input.py` tests every row. Every
command ends with exit code 2 and leaves no file behind. The commands run in a folder with a small corpus (`train.fr`,
`train.en`, ...), a text `in.txt` and a trained run, `run`. They contain these abbreviations, in which `...` is a list of
settings that keep training short:
"""


def table() -> str:
    """Runs every case, and returns a Markdown page with a table of the error messages."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        base = prepare(Path(name) / "base")
        for number, case in enumerate(CASES):
            place = Path(shutil.copytree(base, Path(name) / str(number)))
            spoil_files(case, place)
            ended = run(case.command, place)
            if ended.code != 2:
                raise SystemExit(f"{case.what}: ended with {ended.code}\n{ended.err}")
            said = ended.problems.replace(str(place), "FOLDER").strip().replace("|", r"\|").replace("\n", "<br>")
            command = case.command.encode(errors="backslashreplace").decode().replace("|", r"\|")
            command = command.replace(WORDS, "chat chat ... chat").replace(QUICK, "...")
            rows.append(f"| {case.what} | `{command}` | {said} |")
    shorts = [f"- `{name}`: `{text.replace(QUICK, '...')}`" for name, text in SHORT.items()]
    return "\n".join([PAGE, *shorts, "", "| what is wrong | command | error message |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    torch.set_num_threads(1)
    text = table()
    for path in sys.argv[1:]:
        Path(path).write_text(text, encoding="utf-8")
    print(text, end="")
