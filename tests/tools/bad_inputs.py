"""Defines user mistakes and the error messages that they must cause.

`python tests/tools/bad_inputs.py [FILE]` prints a table of the mistakes and messages, and also writes it to FILE if one is given.
Each case gets its own folder with a small corpus and a trained run, may damage or add files there, and then runs a command.
"""

import contextlib
import gzip
import io
import os
import pickle
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from entente import cli
from entente.checkpoint import ENTRY, read, write
from entente.console import exit_codes
from tiny import write_corpus

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
BEST = "run/checkpoints/best.ckpt"
TRAIN, VALID = "data.train.src=train.fr data.train.tgt=train.en", "data.valid.src=valid.fr data.valid.tgt=valid.en"
# These settings end training after two steps, in case a mistake goes unnoticed and training starts.
QUICK = "data.tokenizer.vocab_size=340 model.d_model=32 model.n_heads=2 model.n_layers=1 model.d_ff=48 trainer.max_steps=2"
QUICK += " trainer.validate_every=1 trainer.accelerator=cpu trainer.threads=1 views.attention=false search.length_factor=1"
SHORT = {
    "FILES": f"data=files {TRAIN} {VALID} {QUICK}",
    "PAIRS": f"data=files {VALID} {QUICK}",  # used together with data.train=FILE
    "OWN": "evaluate checkpoint=run src=my.fr tgt=my.en output=scores",
    "TRANSLATE": "translate checkpoint=run input=in.txt output=out.txt",
}

Action = Callable[[], object]


class Case(NamedTuple):
    what: str
    command: str
    line: str  # one regular expression per line of the error message, for the text after "error: "
    spoil: Action | tuple[Action, ...] = ()  # called in the folder before the command is run
    stdin: bytes | None = b""  # None closes standard input
    real: bool = False  # whether the command is also run in a separate process


class Result(NamedTuple):
    code: object
    out: str
    err: str


def arguments(command: str) -> list[str]:
    """Returns the words of a command, with the abbreviations of SHORT expanded."""
    for name, text in SHORT.items():
        command = re.sub(rf"\b{name}\b", text, command)
    return shlex.split(command)


def run(command: str, folder: Path, stdin: bytes | None = b"") -> Result:
    """Runs a verb in this process, with `folder` as the working directory. Returns its exit code and output."""
    name, *overrides = arguments(command)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    code: object = 0
    with (
        contextlib.chdir(folder),
        patch.object(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)))),
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


def content(folder: Path) -> dict[str, object]:
    """Returns a dict that maps each path below the folder to the bytes of the file, or to None if the path is not a file.

    Files of 10 MB or more are represented by their size and modification time. The cache is left out, since a refused command
    may fill it, and so is `outputs` if it is empty.
    """

    def state(path: Path) -> object:
        if not path.is_file():
            return None
        size, changed = path.stat().st_size, path.stat().st_mtime_ns
        return path.read_bytes() if size < 10**7 else (size, changed)

    paths = [path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts]
    found = {str(path.relative_to(folder)): state(path) for path in paths}
    if "outputs" in found and not any(name.startswith("outputs/") for name in found):
        del found["outputs"]
    return found


def put(name: str, data: bytes | str) -> Action:
    def act() -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return act


def both(name: str, src: str, tgt: str) -> tuple[Action, Action]:
    return put(f"{name}.fr", src), put(f"{name}.en", tgt)


def cut(name: str, left: float, change: Callable[[bytes], bytes] = bytes) -> Action:
    """Returns an action that applies `change` to a file's bytes, then truncates them to the fraction `left` of their length."""

    def act() -> None:
        data = change(Path(name).read_bytes())
        Path(name).write_bytes(data[: int(left * len(data))])

    return act


def keep_lines(name: str, n: int) -> Action:
    """Returns an action that keeps only the first n lines of a file."""

    def act() -> None:
        Path(name).write_text("".join(Path(name).read_text(encoding="utf-8").splitlines(keepends=True)[:n]), encoding="utf-8")

    return act


def folder(name: str) -> Action:
    def act() -> None:
        Path(name).unlink(missing_ok=True)
        Path(name).mkdir()

    return act


def remove(name: str) -> Action:
    return lambda: Path(name).unlink()


def grow(name: str) -> Action:
    """Returns an action that extends a file to 100 MB. The file becomes sparse, so it takes no more space on disk."""
    return lambda: os.truncate(name, 100_000_000)


def pipe(name: str) -> tuple[Action, Action]:
    return lambda: Path(name).unlink(missing_ok=True), lambda: os.mkfifo(name)


def parquet(name: str, **columns: list[Any]) -> Action:
    return lambda: pq.write_table(pa.table(columns), name)


def replace(name: str, old: str, new: str) -> Action:
    return lambda: Path(name).write_text(Path(name).read_text().replace(old, new))


def edit_checkpoint(place: str, value: object = None) -> Action:
    """Returns an action that sets the checkpoint entry at `place`, a path such as a/b/c, or removes it if `value` is None.

    The action also updates the checksum.
    """

    def act() -> None:
        whole = read(Path(BEST))
        *path, last = place.split("/")
        part = whole
        for step in path:
            part = part[step]
        part.pop(last)
        if value is not None:
            part[last] = value
        write(whole, Path(BEST))

    return act


class CreatesFile:
    """An object that creates the file `victim` when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (Path("victim"),)


def write_malicious_checkpoint() -> None:
    with zipfile.ZipFile(BEST) as good, zipfile.ZipFile("evil.ckpt", "w") as evil:
        for part in good.infolist():
            evil.writestr(part, pickle.dumps(CreatesFile(), 2) if part.filename.endswith("data.pkl") else good.read(part))


WORDS = "chat " * 10_000
TOO_LONG = r"a sentence of 10,000 words has [\d,]+ pieces, more than the 1,024 allowed; split it"
NO_CHECKPOINT = "not a checkpoint, or a damaged one \\(.+\\); use another copy, or give one that this program wrote"
NAME = r"a name \(1 to 200 bytes, .+\)"
FOLDER = r"give the name of a folder under output_dir \(.+\)"
TRUST = "add trust_data=true to read the corpus that this checkpoint names"
FILES_NAMED = (
    "data.name=files, data.train.src=train.fr, data.train.tgt=train.en, data.valid.src=valid.fr, data.valid.tgt=valid.en"
)
NO_PROC = r"/proc/x: cannot be read or written \(No such file or directory\)"
BILLION_LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
NO_HOME = "no such user; write out the path, or use ~/ for your own home folder"
ALIGNED = "each line must be the translation of the same line in the other file"
TOO_MUCH = "longer than the limit of 1,000,000 bytes; break it into sentences"
WHOLE = "a whole number of at least"
SEED = f"{WHOLE} 0 and less than 4294967296"
APART = "pairs that share a sentence stay together"
CODE = "it is damaged, or contains code, none of which was run; give one that this program wrote"
RESUME_LEAVE = "resume=run continues with that run's own settings; leave out"

CASES = [
    # Files of text.
    Case("no such file", "train FILES data.train.src=trian.fr", r"trian\.fr: no such file"),
    Case("a folder in place of a file", "train FILES", r"train\.fr: this is a folder; give a file", folder("train.fr")),
    Case("a path below a file", "train FILES data.train.src=in.txt/x", r"in\.txt/x: cannot be read \(Not a directory\)"),
    Case("an empty file", "train FILES", r"train\.fr: the file is empty", put("train.fr", "")),
    Case(
        "files with different numbers of lines",
        "train FILES",
        rf"train\.en has more lines \(211\) than train\.fr \(1\): {ALIGNED}",
        put("train.fr", "un\n"),
    ),
    Case(
        "Latin-1 text",
        "train FILES",
        r"valid\.fr, line 2: not UTF-8 text; convert it to UTF-8 first",
        put("valid.fr", "un\nété\n".encode("latin-1")),
    ),
    Case(
        "UTF-16 text",
        "train FILES",
        r"train\.fr, line 1: not UTF-8 text; convert it to UTF-8 first",
        put("train.fr", "été\n".encode("utf-16")),
    ),
    Case(
        "a truncated gzip file",
        "train FILES",
        r"train\.fr: damaged or truncated gzip file \(.+\); fetch it again",
        cut("train.fr", 0.9, gzip.compress),
    ),
    Case(
        "a damaged gzip file",
        "train FILES",
        r"train\.fr: damaged or truncated gzip file \(.+\); fetch it again",
        put("train.fr", gzip.compress(b"un\n")[:10] + b"no deflated data"),
    ),
    Case(
        "files without text",
        "train FILES",
        r"valid\.fr and valid\.en: no sentence pair is left after dropping empty, over-long and uneven ones",
        both("valid", "\n \n", "a\nb\n"),
    ),
    Case(
        "a corpus of one line, and no validation files",
        f"train data=files {TRAIN} {QUICK}",
        rf"data\.split\.valid=0\.05 data\.split\.test=0\.05: of 1 pair, none is left for train; {APART}",
        both("train", "un\n", "one\n"),
    ),
    Case(
        "a training sentence of 10,000 words",
        "train FILES",
        r"train\.fr and train\.en: no sentence pair is left after dropping empty, over-long and uneven ones",
        both("train", WORDS, WORDS),
    ),
    Case(
        "a validation sentence of 10,000 words",
        "train FILES",
        f"valid, src, 'chat chat chat .*': {TOO_LONG}",
        both("valid", WORDS, "a"),
    ),
    Case("equal languages", "train FILES data.tgt=fr", r"data\.src=fr data\.tgt=fr: source and target are the same language"),
    Case(
        "a source file without a target file",
        "train data=files data.train.src=train.fr",
        r"data\.train\.tgt is not set: give it as data\.train\.tgt=VALUE",
    ),
    Case("100 MB without a line break", "train FILES", rf"train\.fr, line 212: {TOO_MUCH}", grow("train.fr")),
    Case("an endless device", "TRANSLATE input=/dev/zero", f"/dev/zero, line 1: {TOO_MUCH}"),
    Case(
        "a gzip file that unpacks to a line of 500 MB",
        "TRANSLATE",
        rf"in\.txt, line 1: {TOO_MUCH}",
        put("in.txt", gzip.compress(bytes(10**6)) * 500),
    ),
    Case(
        "a line of 2 MB on standard input",
        "translate checkpoint=run output=out.txt",
        f"standard input, line 2: {TOO_MUCH}",
        stdin=b"un\n" + b"x" * 2_000_000,
    ),
    Case("training text from a pipe", "train FILES", r"train\.fr: .+ read only once, .+; give a file", pipe("train.fr")),
    Case(
        "the same pipe as source and target",
        "evaluate checkpoint=run src=both tgt=both",
        "src=both tgt=both: this is one stream, which can be read only once; give two",
        pipe("both"),
    ),
    # Paths.
    *(
        Case(
            f"the home folder of an unknown user, {command.split()[0]} {number}",
            f"{command}~nobodyhere/x.md",
            rf"{key}~nobodyhere/x\.md: {NO_HOME}",
        )
        for number, (command, key) in enumerate(
            (
                ("translate checkpoint=", ""),
                ("TRANSLATE input=", ""),
                ("TRANSLATE output=", ""),
                ("evaluate checkpoint=run src=valid.fr tgt=valid.en output=", ""),
                ("evaluate checkpoint=run tgt=valid.en src=", ""),
                ("evaluate checkpoint=run attention=true src=valid.fr tgt=valid.en alignments=", ""),
                ("train FILES data.train.src=", ""),
                ("train FILES data.train.tgt=", ""),
                ("train FILES output_dir=", "output_dir="),
                ("train resume=", ""),
                ("train data=opus_books data.path=", ""),
                ("attention checkpoint=run sentence=chat output=", ""),
                ("trace example=true output=", ""),
                ("compare runs=", ""),
                ("ablate suite=[baseline] output_dir=", ""),
                ("growth output=", "output="),
                ("benchmark benchmark.output=", r"benchmark\.output="),
                ("benchmark benchmark.peers.eole=", r"benchmark\.peers\.eole="),
            ),
            start=1,
        )
    ),
    Case(
        "a name too long for a path",
        f"translate checkpoint={'x' * 300}",
        "checkpoint=x{300}: no such file, and no folder that contains checkpoints/best.ckpt",
    ),
    # Files of pairs.
    Case(
        "TSV without a heading",
        "train PAIRS data.train=x.tsv",
        r"x\.tsv: no column is named fr or src; give data\.columns\.src=COLUMN data\.columns\.tgt=COLUMN, .+",
        put("x.tsv", "un\tone\n"),
    ),
    Case(
        "TSV with too few columns",
        "train PAIRS data.train=x.tsv data.columns.src=1 data.columns.tgt=2",
        r"x\.tsv, row 2: no en text in column 2 of 1",
        put("x.tsv", "un\tone\ndeux two\n"),
    ),
    Case(
        "CSV with an unclosed quote",
        "train PAIRS data.train=x.csv",
        r"x\.csv, line 3: not valid CSV \(.+\)",
        put("x.csv", 'fr,en\nun,one\n"deux,two\n'),
    ),
    Case(
        "JSON lines that are not JSON",
        "train PAIRS data.train=x.jsonl",
        r"x\.jsonl, line 2: not a JSON object; each line must be an object with both sides of a pair",
        put("x.jsonl", '{"fr": "un", "en": "one"}\nfr: deux\n'),
    ),
    Case(
        "JSON lines with a key missing",
        "train PAIRS data.train=x.jsonl",
        r"x\.jsonl, row 2: no en text in column 2 of 2",
        put("x.jsonl", '{"fr": "un", "en": "one"}\n{"fr": "deux"}\n'),
    ),
    Case(
        "Parquet with a column of numbers",
        "train PAIRS data.train=x.parquet",
        r"x\.parquet, row 1: no en text in column 2 of 2",
        parquet("x.parquet", fr=["un"], en=[1]),
    ),
    Case(
        "truncated Parquet",
        "train PAIRS data.train=x.parquet",
        r"x\.parquet: not a Parquet file, or a damaged one \(.+\); fetch it again",
        (parquet("x.parquet", fr=["un"], en=["one"]), cut("x.parquet", 0.9)),
    ),
    Case(
        "TSV line of 100 MB", "train PAIRS data.train=x.tsv", rf"x\.tsv, line 1: {TOO_MUCH}", (put("x.tsv", ""), grow("x.tsv"))
    ),
    Case(
        "CSV with a row that never ends",
        "train PAIRS data.train=x.csv",
        rf"x\.csv, the row up to line 333334 \(perhaps with an unclosed quote\): {TOO_MUCH}",
        put("x.csv", 'fr,en\nun,"' + '","\n' * 400_000),
    ),
    Case(
        "JSON lines with a line of 100 MB",
        "train PAIRS data.train=x.jsonl",
        rf"x\.jsonl, line 2: {TOO_MUCH}",
        (put("x.jsonl", '{"fr": "un", "en": "one"}\n'), grow("x.jsonl")),
    ),
    Case(
        "Parquet with a cell of 20 MB",
        "train PAIRS data.train=x.parquet",
        rf"x\.parquet, row 2, column 2: {TOO_MUCH}",
        parquet("x.parquet", fr=["un", "deux"], en=["one", "two " * 5_000_000]),
    ),
    Case(
        "an unknown file format",
        "train PAIRS data.train=x.docx",
        r"x\.docx: unknown format; a file of pairs ends in \.tsv, .+; two parallel files are given as \.src=FILE \.tgt=FILE",
        put("x.docx", "PK"),
    ),
    Case(
        "Multi30k from a folder that lacks it",
        f"train data=multi30k data.root=. {QUICK}",
        r"data\.root=\.: there is no train\.fr\.gz in it or its subfolder data/task1/raw",
    ),
    # Settings.
    Case(
        "a mistyped key",
        "train trainer.max_stpes=9",
        r"trainer\.max_stpes=9: no such setting; did you mean trainer\.max_steps\?",
    ),
    Case(
        "a mistyped option of a config group",
        "train model=trasnformer",
        "model=trasnformer: choose one of birnn, modern, transformer; did you mean transformer\\?",
    ),
    Case("no option for a config group", "train model=", "model=: choose one of birnn, modern, transformer"),
    Case("an option for a part that has none", "train optim=cosine", r"optim=cosine: give settings, each as optim\.KEY=VALUE"),
    Case("an unknown key added with +", "train +foo=1", "foo=1: no such setting; the settings here are seed, name, .+"),
    Case("a key with no value", "train seed", r"seed: not an override; write KEY=VALUE; did you mean seed=VALUE\?"),
    Case("an equals sign without a key and a value", "train =", "=: .+"),
    Case("a mistyped configuration name", "train --config-name trian", "Cannot find primary config 'trian'.+", real=True),
    Case("a removed part", "train ~search", "search: required, but missing from the configuration"),
    Case(
        "a removed part that other settings refer to",
        "train ~model",
        "~model: choose one of birnn, modern, transformer",
    ),
    Case("a part that is a number", "train search=3", r"search=3: give settings, each as search\.KEY=VALUE"),
    Case("a removed key", "train ~name", "name is not set: give it as name=VALUE"),
    Case(
        "several wrong types",
        "train seed=x overfit=1 optim.lr=fast trainer.max_steps=1.5 checkpoint.every=null views.translations=yes "
        "search.beam=two data.batch.max_tokens=[] data.tokenizer.joint=0 model.tied=0 model.residual=self",
        rf"""seed=x: give {SEED}
overfit=1: give true or false
optim\.lr=fast: give a number greater than 0
trainer\.max_steps=1\.5: give {WHOLE} 1
checkpoint\.every=null: give {WHOLE} 1
search\.beam=two: give a whole number from 1 to 1000
views\.translations=yes: give {WHOLE} 0
model\.residual=self: give a list of self, cross, ff
model\.tied=0: give true or false
data\.tokenizer\.joint=0: give true or false
data\.batch\.max_tokens=\[\]: give {WHOLE} 1""",
    ),
    Case("a seed below zero", "train seed=-1", f"seed=-1: give {SEED}"),
    Case("a seed beyond 32 bits", "train seed=4294967296", f"seed=4294967296: give {SEED}"),
    Case("no training steps", "train trainer.max_steps=0", rf"trainer\.max_steps=0: give {WHOLE} 1"),
    Case("a learning rate that is not a number", "train optim.lr=.nan", r"optim\.lr='\.nan': give a number greater than 0"),
    Case("an unknown accelerator", "train trainer.accelerator=gpus", r"trainer\.accelerator=gpus: choose another \(.+\)"),
    Case("an unknown strategy", "train trainer.strategy=dpp", r"trainer\.strategy=dpp: choose another \(.+\)"),
    Case("no devices", "train trainer.devices=0", r"trainer\.devices=0: choose a whole number of at least 1 or one of auto"),
    Case(
        "several devices for the runs of a sweep",
        "train -m seed=1,2 trainer.devices=2",
        r"trainer\.devices=2: each run needs its own command; leave out -m, or use ablate",
    ),
    Case(
        "a sweep over the number of devices",
        "train -m trainer.devices=2,1",
        r"trainer\.devices=2: each run needs its own command; leave out -m, or use ablate",
    ),
    Case("an unknown precision", "train trainer.precision=13", r"trainer\.precision=13: choose another \(.+\)"),
    Case(
        "an unknown tokenizer",
        "train data.tokenizer.type=bqe",
        r"data\.tokenizer\.type=bqe: choose one of bpe, unigram; did you mean bpe\?",
    ),
    Case(
        "an argument that is not UTF-8",
        "attention checkpoint=run sentence=\udce9t\udce9",
        r"'sentence=\\udce9t\\udce9': not UTF-8 text; convert it, or rename the file",
    ),
    # Impossible sizes.
    Case(
        "a share of less than one batch",
        "train FILES trainer.limit_batches=0.1",
        r"trainer\.limit_batches=0\.1: that is less than one batch, since valid has only 1; give a larger share, or .+",
    ),
    Case("3 heads for a width of 128", "train model.n_heads=3", r"model\.d_model=128 is not divisible by model\.n_heads=3"),
    Case("a huge width", "train model.d_model=1e9", r"model\.d_model=1000000000\.0: give a whole number from 1 to 8192"),
    Case(
        "a model too large for the machine's memory",
        "train FILES model.d_model=8192 model.d_ff=65536 model.n_layers=64",
        r"model: its [\d,]+ parameters take [\d,]+ GB to train, but the device has [\d,]+ GB; make it smaller .+ n_layers",
    ),
    Case(
        "too small a vocabulary",
        "train FILES data.tokenizer.vocab_size=5",
        r"data\.tokenizer\.vocab_size=5 is too small: this corpus needs at least \d+ \(.+\)",
    ),
    Case(
        "too large a vocabulary",
        "train data.tokenizer.vocab_size=100000000000",
        r"data\.tokenizer\.vocab_size=100000000000: give a whole number from 1 to 1000000",
    ),
    Case(
        "batches too small for any sentence",
        "train FILES data.batch.max_tokens=2",
        r"data\.batch\.max_tokens=2: every training pair is longer; the shortest has \d+ tokens .+, so give .+",
    ),
    Case("batches of 0 tokens", "train data.batch.max_tokens=0", rf"data\.batch\.max_tokens=0: give {WHOLE} 1"),
    Case(
        "a split larger than the corpus",
        f"train data=files {TRAIN} data.split.valid=500 {QUICK}",
        rf"data\.split\.valid=500 data\.split\.test=0\.05: of 211 pairs, none is left for train; {APART}",
    ),
    Case(
        "a split of 150%",
        "train FILES data.split.valid=1.5",
        rf"data\.split\.valid=1\.5: give {WHOLE} 1 or a number greater than 0 and less than 1",
    ),
    Case(
        "more training sentences than the maximum",
        "train data.train=10000000000",
        r"data\.train=10000000000: give a whole number from 1 to 1000000",
    ),
    # Runs.
    Case("a file as output_dir", "train FILES output_dir=in.txt", r"output_dir=in\.txt: \S*in\.txt is a file; give a folder"),
    Case(
        "output_dir in a file", "train FILES output_dir=in.txt/x", r"output_dir=in\.txt/x: \S*in\.txt is a file; give a folder"
    ),
    Case("a name too long for a folder", "train FILES name=" + "x" * 300, rf"name=x+\.\.\.: {FOLDER}"),
    Case("an empty name", "train name=''", f"name='': {FOLDER}"),
    Case("a name that leads out of the folder", "train FILES name=../../escape", rf"name=\.\./\.\./escape: {FOLDER}"),
    Case("a name that is an absolute path", "train FILES name=/escape", f"name=/escape: {FOLDER}"),
    Case("a name with an escape sequence", "train FILES name='a\x1b[2Jb'", f"name=.+: {FOLDER}"),
    Case(
        "a test set whose name is a path",
        "train FILES +data.test={a/b:{src:valid.fr,tgt:valid.en}}",
        f"data.test.a/b: not {NAME}; rename it",
    ),
    Case(
        "a test set whose name is too long for a file",
        f"train FILES +data.test={{{'x' * 260}:{{src:valid.fr,tgt:valid.en}}}}",
        rf"data\.test\.x+\.\.\.: not {NAME}; rename it",
    ),
    Case(
        "extra text without its target",
        "train FILES +data.extra.more.src=train.fr",
        r"data\.extra\.more\.src=train\.fr: give either data\.extra\.more\.file=FILE, "
        r"or both data\.extra\.more\.src=FILE and data\.extra\.more\.tgt=FILE",
    ),
    Case(
        "extra text with a weight of 0, a missing column and a misspelt key",
        "train FILES '+data.extra.x={file:x.tsv,weight:0,columns:{src:2}}' '+data.extra.y={flie:y.tsv}'",
        r"data\.extra\.x\.columns\.tgt is not set: give it as data\.extra\.x\.columns\.tgt=VALUE"
        "\n"
        r"data\.extra\.x\.weight=0: give a whole number from 1 to 1000"
        "\n"
        r"data\.extra\.y\.flie=y\.tsv: no such setting; did you mean data\.extra\.y\.file\?"
        "\n"
        r"data\.extra\.y\.file=: give either data\.extra\.y\.file=FILE, or both .+",
    ),
    Case("extra text that is a list", "train FILES data.extra=[a.tsv]", r"data\.extra=\[a\.tsv\]: give settings by name, .+"),
    Case("a non-numeric weight", "train FILES data.weight=two", r"data\.weight=two: give a whole number from 1 to 1000"),
    Case("a missing extra file", "train FILES +data.extra.x=gone.tsv", r"gone\.tsv: no such file"),
    Case("extra text without a file", "train FILES +data.extra.x=", r"data\.extra\.x is not set: give it as .+"),
    Case("the Tatoeba experiment without its file", "train experiment=tatoeba", "data.train is not set: give it as .+"),
    Case(
        "BPE dropout of 1",
        "train data.batch.bpe_dropout=1",
        r"data\.batch\.bpe_dropout=1: give a number of at least 0 and less than 1",
    ),
    Case(
        "BPE dropout with a unigram tokenizer",
        "train data.batch.bpe_dropout=0.1 data.tokenizer.type=unigram",
        r"data\.batch\.bpe_dropout=0\.1 and data\.tokenizer\.type=unigram: only type=bpe merges pieces; .+",
    ),
    Case(
        "both directions with two vocabularies",
        "train data.batch.both_directions=2 data.tokenizer.joint=false model.tied=false",
        r"data\.batch\.both_directions=2 and data\.tokenizer\.joint=false: both directions need one vocabulary; .+",
    ),
    Case("a language that is a path", "train FILES data.src=../fr", rf"data\.src=\.\./fr: give {NAME}"),
    Case(
        "resuming something that is not a run",
        "train resume=in.txt",
        r"resume=in\.txt: not a run's directory \(it has no config\.yaml\); give the directory of a run, or resume=auto",
    ),
    Case("another seed for a resumed run", "train resume=run seed=2", f"{RESUME_LEAVE} seed=2"),
    Case(
        "a damaged config.yaml",
        "train resume=run",
        r"resume=run: run/config\.yaml cannot be read \(line 1: .+\)",
        put("run/config.yaml", "a: ["),
    ),
    Case(
        "an empty config.yaml",
        "train resume=run",
        r"resume=run: run/config\.yaml is not the configuration of a run",
        put("run/config.yaml", ""),
    ),
    Case(
        "half a config.yaml",
        "train resume=run",
        r"run/config\.yaml: .*model.*: required, but missing from the configuration",
        keep_lines("run/config.yaml", 20),
    ),
    Case(
        "a config.yaml with a wrong value",
        "train resume=run",
        r"run/config\.yaml: model\.d_model=32 is not divisible by model\.n_heads=3",
        replace("run/config.yaml", "n_heads: 2", "n_heads: 3"),
    ),
    Case(
        "a resumed run whose training text has changed",
        "train resume=run",
        r"run/checkpoints/step-2\.ckpt: the training or validation text has changed since this checkpoint was written; .+",
        (remove("run/metrics.json"), replace("train.fr", "chat", "matou")),
    ),
    *(
        Case(
            f"a config.yaml that {what}", "train resume=run", rf"resume=run: run/config\.yaml cannot be read \({line}\)", spoil
        )
        for what, line, spoil in (
            ("is a pipe", "a pipe or a device, not a file", pipe("run/config.yaml")),
            ("is 100 MB long", "larger than 10,000,000 bytes", grow("run/config.yaml")),
            ("is nested too deeply", "nested too deeply", put("run/config.yaml", "[" * 10_000)),
            ("expands to billions of values", "more than 100,000 values", put("run/config.yaml", BILLION_LAUGHS)),
        )
    ),
    # Checkpoints.
    Case("a missing checkpoint setting", "translate", "checkpoint is not set: give it as checkpoint=VALUE"),
    Case(
        "no such checkpoint",
        "TRANSLATE checkpoint=gone",
        "checkpoint=gone: no such file, and no folder that contains checkpoints/best.ckpt",
    ),
    Case("a checkpoint that is text", "TRANSLATE checkpoint=in.txt", rf"in\.txt: {NO_CHECKPOINT}"),
    Case("a truncated checkpoint", "TRANSLATE", rf"{BEST}: {NO_CHECKPOINT}", cut(BEST, 0.5)),
    Case("an empty checkpoint", "TRANSLATE", rf"{BEST}: {NO_CHECKPOINT}", cut(BEST, 0)),
    Case(
        "a checkpoint from another program",
        "evaluate checkpoint=foreign.ckpt",
        r"foreign\.ckpt: a checkpoint from another program; give one that this program wrote",
        lambda: torch.save({"state_dict": {}}, "foreign.ckpt"),
    ),
    Case(
        "a checkpoint of another format",
        "TRANSLATE",
        rf"{BEST}: its format is 1, but this version reads format 2; install entente>=0.1 or train the model again",
        edit_checkpoint(f"{ENTRY}/schema", 1),
    ),
    Case(
        "a pickle that would write a file",
        "TRANSLATE checkpoint=evil.ckpt",
        rf"evil\.ckpt: {NO_CHECKPOINT}",
        lambda: Path("evil.ckpt").write_bytes(pickle.dumps(CreatesFile())),
    ),
    Case(
        "a checkpoint with a pickle that would write a file",
        "TRANSLATE checkpoint=evil.ckpt",
        rf"evil\.ckpt: not a readable checkpoint: {CODE}",
        write_malicious_checkpoint,
        real=True,
    ),
    Case(
        "weights of another model",
        "TRANSLATE",
        rf"{BEST}: its weights do not fit its configuration \(.+\)",
        edit_checkpoint(f"{ENTRY}/config/model/d_ff", 47),
    ),
    Case(
        "a checkpoint whose configuration lacks the corpus",
        "evaluate checkpoint=run",
        "run: its configuration lacks data; give a checkpoint that this program wrote",
        edit_checkpoint(f"{ENTRY}/config/data"),
    ),
    Case(
        "a checkpoint with an unknown setting",
        "evaluate checkpoint=run",
        "run: in its configuration, data.batch.size=7: no such setting; .+",
        edit_checkpoint(f"{ENTRY}/config/data/batch", {"max_tokens": 500, "size": 7}),
    ),
    Case(
        "a checkpoint whose test set would be written outside the output folder",
        "evaluate checkpoint=run split=all output=scores",
        rf"run: in its configuration, data\.test\.\.\./\.\./victim: not {NAME}; rename it",
        edit_checkpoint(f"{ENTRY}/config/data/test", {"../../victim": {"src": "valid.fr", "tgt": "valid.en"}}),
    ),
    Case(
        "a checkpoint whose test set is an absolute path",
        "evaluate checkpoint=run split=all output=scores",
        rf"run: in its configuration, data\.test\./victim: not {NAME}; rename it",
        edit_checkpoint(f"{ENTRY}/config/data/test", {"/victim": {"src": "valid.fr", "tgt": "valid.en"}}),
    ),
    Case(
        "a checkpoint that would read files without permission",
        "evaluate checkpoint=run output=scores",
        f"checkpoint=run: {TRUST}: {FILES_NAMED}",
    ),
    Case(
        "a checkpoint that would fetch from a URL without permission",
        "evaluate checkpoint=run output=scores",
        rf"checkpoint=run: {TRUST}: data\.name=multi30k, data\.root=http://127\.0\.0\.1:9/x, data\.tests=\['.+'\]",
        edit_checkpoint(
            f"{ENTRY}/config/data",
            {
                **{"name": "multi30k", "root": "http://127.0.0.1:9/x", "tests": ["test_2016_flickr"], "max_words": 100},
                **{"src": "fr", "tgt": "en", "batch": {"max_tokens": 500}},
                "tokenizer": {"vocab_size": 300, "type": "bpe", "joint": True},
            },
        ),
    ),
    Case(
        "an attention map of a pair whose files would be read without permission",
        "attention checkpoint=run pair=valid/1",
        f"checkpoint=run: {TRUST}: {FILES_NAMED}",
    ),
    Case(
        "a checkpoint whose format is a megabyte of text",
        "TRANSLATE",
        rf"{BEST}: its format is x{{77}}\.\.\., but this version reads format 2; install entente>=0.1 or train the model again",
        edit_checkpoint(f"{ENTRY}/schema", "x" * 10**6),
    ),
    Case(
        "a checkpoint whose format is an escape sequence",
        "TRANSLATE",
        rf"{BEST}: its format is \\x1b\[2J, but this version reads format 2; install entente>=0.1 or train the model again",
        edit_checkpoint(f"{ENTRY}/schema", "\x1b[2J"),
    ),
    # Scores.
    Case(
        "an unknown split",
        "evaluate checkpoint=run trust_data=true split=tset",
        "split=tset: this corpus has train, valid; choose one of these",
    ),
    Case(
        "an empty split list",
        "evaluate checkpoint=run trust_data=true split=[]",
        r"split=\[\]: give at least one split, or split=all",
    ),
    Case("no corpus", "evaluate checkpoint=run trust_data=true output=scores", r"valid\.fr: no such file", remove("valid.fr")),
    Case(
        "a source file to score without a target file",
        "evaluate checkpoint=run src=valid.fr",
        "src and tgt go together: give both files, src=FILE tgt=FILE",
    ),
    Case(
        "files to score with different numbers of lines",
        "OWN",
        rf"my\.fr has more lines \(2\) than my\.en \(1\): {ALIGNED}",
        both("my", "un\ndeux\n", "one\n"),
    ),
    Case(
        "files to score without any pair",
        "OWN",
        r"my\.fr and my\.en: no sentence pair is left .+",
        both("my", "un\n\n", "\ntwo\n"),
    ),
    Case(
        "a source sentence of 10,000 words to score",
        "OWN",
        rf"my\.fr, line 3: {TOO_LONG}",
        both("my", f"un\n\n{WORDS}\n", "one\n\nthree\n"),
    ),
    Case("a target sentence of 10,000 words to score", "OWN", rf"my\.en, line 1: {TOO_LONG}", both("my", "un\n", WORDS)),
    Case(
        "a file in place of the folder for scores",
        "OWN output=in.txt",
        r"output=in\.txt: cannot be written \(File exists\); give another path",
        both("my", "un\n", "one\n"),
    ),
    Case(
        "n_best in an evaluation",
        "evaluate checkpoint=run search.n_best=2",
        r"search\.n_best=2: no such setting; the settings here are beam, .+",
    ),
    Case(
        "an unknown accelerator to score on",
        "OWN accelerator=gpus",
        r"accelerator=gpus: choose another \(.+\)",
        both("my", "un\n", "one\n"),
    ),
    # Translations.
    Case("a missing text to translate", "TRANSLATE input=gone.txt", r"gone\.txt: no such file"),
    Case("a folder to translate", "TRANSLATE input=run", "run: this is a folder; give a file"),
    Case("an empty file to translate", "TRANSLATE", r"in\.txt: the file is empty", put("in.txt", "")),
    Case(
        "bytes that are not text",
        "TRANSLATE",
        r"in\.txt, line 2: not UTF-8 text; convert it to UTF-8 first",
        put("in.txt", bytes(range(256))),
    ),
    Case("10,000 words to translate", "TRANSLATE", rf"in\.txt, line 3: {TOO_LONG}", put("in.txt", f"un\n\n{WORDS}\nquatre\n")),
    Case(
        "10,000 words on standard input",
        "translate checkpoint=run output=out.txt",
        f"standard input, line 2: {TOO_LONG}",
        stdin=f"un\n{WORDS}\n".encode(),
    ),
    Case(
        "Latin-1 text on standard input",
        "translate checkpoint=run output=in.txt",
        "standard input, line 2: not UTF-8 text; convert it to UTF-8 first",
        stdin="un\nété\n".encode("latin-1"),
        real=True,
    ),
    Case("closed standard input", "translate checkpoint=run", "standard input is closed: give input=FILE", stdin=None),
    Case(
        "a translation written to a missing folder",
        "TRANSLATE output=gone/out.txt",
        r"output=gone/out\.txt: cannot be written \(No such file or directory\); give another path",
    ),
    Case("a folder as output", "TRANSLATE output=run", r"output=run: cannot be written \(Is a directory\); give another path"),
    Case(
        "an n_best larger than the beam",
        "TRANSLATE search.n_best=9",
        r"search\.n_best=9 and search\.beam=5: n_best must be between 1 and beam",
    ),
    Case("an unknown accelerator to translate on", "TRANSLATE accelerator=gpus", r"accelerator=gpus: choose another \(.+\)"),
    Case("a mistyped input", "translate checkpoint=run inptu=in.txt", r"inptu=in\.txt: no such setting; did you mean input\?"),
    Case(
        "a config group of another command",
        "translate checkpoint=run model=birnn",
        "model=birnn: no such setting; the settings here are checkpoint, .+, input, output, search",
    ),
    # Attention.
    Case("an empty sentence", "attention checkpoint=run sentence='  '", "sentence is empty: give one as sentence='...'"),
    Case("an empty list of checkpoints", "attention checkpoint=[]", r"checkpoint=\[\]: give at least one checkpoint"),
    Case("an attention map of 10,000 words", f"attention checkpoint=run sentence='{WORDS}'", f"sentence: {TOO_LONG}"),
    Case("a layer that does not exist", "attention checkpoint=run layer=2", "layer=2: choose from 1 to 1"),
    Case("a head that does not exist", "attention checkpoint=run head=3", "head=3: choose from 1 to 2"),
    Case("a layer below 1", "attention checkpoint=run layer=0", f"layer=0: give {WHOLE} 1 or null"),
    Case(
        "an unknown picture format",
        "attention checkpoint=run output=map.txt",
        r"output=map\.txt: not a picture format; give a folder, or a name that ends in \.png, \.svg, \.pdf, .+",
    ),
    Case(
        "a picture written to a missing folder",
        "attention checkpoint=run output=maps/map.png",
        r"output=maps/map\.png: there is no folder maps; create it, or give another",
    ),
    Case(
        "occlusion for encoder self-attention",
        "attention checkpoint=run occlusion=true kind=encoder",
        "kind=encoder: occlusion=true needs attention to the source; leave kind out, or give kind=cross",
    ),
    Case(
        "a kind of attention that the model lacks",
        "attention checkpoint=run kind=alignment",
        "kind=alignment: this model has .+; choose .+",
    ),
    Case(
        "a pair that does not exist",
        "attention checkpoint=run trust_data=true pair=valid/0",
        "pair=valid/0: give SPLIT/NUMBER, with a number from 1 to .+",
    ),
    Case(
        "a pair of an unknown split",
        "attention checkpoint=run trust_data=true pair=dev/1",
        "split=dev: this corpus has .+; choose one of these",
    ),
    Case(
        "links for too few sentences",
        "OWN attention=true alignments=links.txt",
        r"links\.txt: 1 line of links for 2 pairs of sentences; give one line for each .+",
        (*both("my", "un chat\ndeux\n", "a cat\ntwo\n"), lambda: Path("links.txt").write_text("0-0\n")),
    ),
    Case(
        "links from an endless device",
        "OWN attention=true alignments=/dev/zero",
        f"/dev/zero, line 1: {TOO_MUCH}",
        both("my", "un chat\n", "a cat\n"),
    ),
    Case(
        "a malformed link",
        "OWN attention=true alignments=links.txt",
        r"links\.txt, line 2: '0:1' is not a link; write i-j for a sure one, i\?j for a possible one, counting words from 0",
        (*both("my", "un chat\ndeux\n", "a cat\ntwo\n"), lambda: Path("links.txt").write_text("0-0\n0-0 0:1\n")),
    ),
    Case(
        "a link to a word that does not exist",
        "OWN attention=true alignments=links.txt",
        r"links\.txt, line 1: 0-99 links words that do not exist; the sentences have \d+ and \d+ words, numbered from 0",
        (*both("my", "un chat\ndeux\n", "a cat\ntwo\n"), lambda: Path("links.txt").write_text("0-99\n\n")),
    ),
    Case("a trace without a checkpoint", "trace", "checkpoint is not set: give checkpoint=FILE, or example=true .+"),
    Case(
        "links without files to score",
        "evaluate checkpoint=run attention=true alignments=links.txt",
        r"alignments=links\.txt needs src=FILE and tgt=FILE; give these too, or leave out alignments",
    ),
    Case(
        "occlusion without attention",
        "evaluate checkpoint=run occlusion=5",
        "occlusion=5 needs attention=true; add it, or leave out occlusion",
    ),
    # Suites, and comparisons of runs.
    Case(
        "an unknown suite",
        "ablate suite=quik",
        "suite=quik: choose one of quick, transformer, parts, birnn, or give a list of variants, .+; did you mean quick\\?",
        real=True,
    ),
    Case(
        "an unknown variant",
        "ablate suite=[baseline,no_residul]",
        "no_residul: no such ablation in configs/ablation; did you mean no_residual\\?",
        real=True,
    ),
    Case("an empty list of seeds", "ablate seeds=[]", r"seeds=\[\]: .+"),
    Case("zero jobs", "ablate jobs=0", f"jobs=0: give {WHOLE} 1"),
    Case("a seed for a suite", "ablate seed=3", "seed=3: a suite sets it for each run; leave it out, and set suite and seeds"),
    Case("a suite without the list of suites", "ablate '~suites'", "suites is not set: give it as suites=VALUE"),
    Case("a run for a suite to resume", "ablate resume=run", "resume=run: a suite sets it .+"),
    Case("an ablation for a suite", "ablate ablation=no_residual", "ablation=no_residual: a suite sets it .+"),
    Case("a suite at an absolute path", "ablate name=/place", f"name=/place: {FOLDER} or null"),
    Case("a suite outside the output folder", "ablate name=../place", rf"name=\.\./place: {FOLDER} or null"),
    Case(
        "a suite without variants", "ablate suite=mine +suites.mine={}", r"suites\.mine\.variants: give a list of variants, .+"
    ),
    Case(
        "3 heads for a width of 128, in a suite",
        "ablate suite=[baseline,one_head] model.n_heads=3",
        "ablation=baseline: model.d_model=128 is not divisible by model.n_heads=3",
    ),
    Case("another model's variant", "ablate suite=[baseline,no_attention]", r"ablation=no_attention: model\.score=none: .+"),
    Case("a mistyped setting of a suite", "ablate trainer.max_stepz=3", ".+did you mean trainer.max_steps\\?"),
    Case(
        "a removed part in a suite",
        "ablate suite=[baseline] ~search",
        ".*search: required, but missing from the configuration.*",
    ),
    Case(
        "a setting that contradicts the ablation",
        "train FILES ablation=no_dropout model.dropout=0.5",
        r"model\.dropout=0\.5: ablation=no_dropout sets it to 0\.0; leave out one of the two",
    ),
    Case(
        "an unusable ablation file and a missing setting",
        "train --config-dir=own ablation=mine data=multi30k",
        r"data\.root is not set: give it as data\.root=VALUE" "\n" r".+mine\.yaml: must set `variant: mine`, .+",
        put("own/ablation/mine.yaml", "# @package _global_\nmodel: {scale: none}\n"),
    ),
    *(
        Case(what, "ablate --config-dir=own suite=[baseline,mine]", line, put("own/ablation/mine.yaml", text))
        for what, text, line in (
            (
                "an ablation file without a @package directive",
                "variant: mine\nmodel: {scale: none}\n",
                r".+mine\.yaml: its first line must be # @package _global_, .+",
            ),
            (
                "an ablation file without a variant name",
                "# @package _global_\nmodel: {scale: none}\n",
                r".+mine\.yaml: must set `variant: mine`, .+",
            ),
            (
                "an ablation file with another variant's name",
                "# @package _global_\nvariant: baseline\nmodel: {scale: none}\n",
                r".+mine\.yaml: must set `variant: mine`, .+",
            ),
            (
                "an ablation file that is not YAML",
                "# @package _global_\nvariant: mine\nmodel: {scale: [\n",
                r".+mine\.yaml: cannot be read .+line 4.+",
            ),
            (
                "an ablation file with an unknown setting",
                "# @package _global_\nvariant: mine\nmodel: {scal: none}\n",
                r"ablation=mine: model\.scal=none: no such setting; did you mean model\.scale\?",
            ),
        )
    ),
    Case(
        "a missing suite",
        "compare nowhere",
        r"nowhere: not a suite, since it has no suite\.yaml; give a suite, or at least two finished runs",
        real=True,
    ),
    Case(
        "a suite with a variant that leads out of the suite's folder",
        "compare stolen",
        r"stolen/suite\.yaml: cannot be read \(variants\.0: .+not a name \(.+\)\); restore it, or remove it and run again",
        put("stolen/suite.yaml", "variants: [../../victim]\nseeds: [1]\n"),
    ),
    *(
        Case(
            f"a suite whose {what}",
            "compare suite",
            line,
            (put("suite/suite.yaml", "variants: [baseline]\nseeds: [1]\n"), *spoil),
        )
        for what, line, spoil in (
            (
                "settings are a pipe",
                r"suite/suite\.yaml: cannot be read \(a pipe or a device, not a file\); .+",
                pipe("suite/suite.yaml"),
            ),
            (
                "settings are nested too deeply",
                r"suite/suite\.yaml: cannot be read \(nested too deeply\); .+",
                (put("suite/suite.yaml", "[" * 10_000),),
            ),
            (
                "proof of effect is malformed",
                r"suite/baseline-seed1/proof\.json: cannot be read \(differs: Input should be a valid array\); .+",
                (put("suite/baseline-seed1/proof.json", '{"differs": 3}'),),
            ),
            (
                "event file is a folder",
                r"suite/baseline-seed1/events\.out\.tfevents\.9: named like a TensorBoard event file, but not a file; .+",
                (
                    lambda: shutil.copytree("run", "suite/baseline-seed1"),
                    lambda: Path("suite/baseline-seed1/events.out.tfevents.9").mkdir(),
                ),
            ),
        )
    ),
    Case("a comparison without runs", "compare", "runs is not set: give it as runs=VALUE"),
    Case("a comparison of one run", "compare run", r"run: not a suite, .+; give a suite, or at least two finished runs"),
    Case(
        "a comparison of a run with itself",
        "compare run run",
        "run: has no scores on a test set; .+\nrun: given twice; leave one out",
    ),
    Case(
        "a comparison of a run with a folder, a suite and an unfinished run",
        "compare own quick unfinished",
        r"own: not a run, .+"
        "\n"
        r"quick: is a suite; .+"
        "\n"
        r"unfinished: not finished, since it has no metrics\.json; .+",
        (
            put("own/x", ""),
            put("quick/suite.yaml", "variants: [baseline]\nseeds: [1]\n"),
            put("unfinished/config.yaml", "seed: 1\n"),
        ),
    ),
    *(
        Case(
            f"a comparison {what}",
            command,
            line,
            (
                put("one/config.yaml", "seed: 1\n"),
                put("one/metrics.json", '{"test": {"bleu": 1}}'),
                put("one/translations/test.tsv", "source\treference\ttranslation\na\tb\tc\n"),
                lambda: shutil.copytree("one", "other"),
                *spoil,
            ),
        )
        for what, command, line, spoil in (
            (
                "of runs with different test sets",
                "compare one other",
                "other: its test sentences are not those of one; compare runs on the same corpus",
                [put("other/translations/test.tsv", "source\treference\ttranslation\na\td\tc\n")],
            ),
            (
                "of a run with another that was evaluated on a different split",
                "compare one other",
                "other: not evaluated on test, unlike one; compare runs on the same corpus",
                [put("other/metrics.json", '{"test_long": {"bleu": 1}}')],
            ),
            (
                "of a run with another that has no seed",
                "compare one other",
                r"other/config\.yaml: its seed is not a number; restore the file",
                [put("other/config.yaml", "name: other\n")],
            ),
            (
                "that would be written into a suite",
                "compare one other output=quick",
                "output=quick: this is a suite's folder, which keeps its own comparison; give another folder",
                [put("quick/suite.yaml", "variants: [baseline]\nseeds: [1]\n")],
            ),
        )
    ),
    Case("zero samples", "compare run samples=0", "samples=0: give a whole number from 1 to 100000"),
    Case("too many samples", f"compare run samples={10**20}", f"samples={10**20}: give a whole number from 1 to 100000"),
    # Hydra's flags, sweeps, settings and configuration files.
    Case(
        "a mistyped key together with a glob",
        "train -m model=glob(*) trainer.max_stepz=3",
        r"trainer\.max_stepz=3: no such setting; did you mean trainer\.max_steps\?",
        real=True,
    ),
    Case("a glob without a match", "train -m model=glob(x*)", r"model=glob\(x\*\): no values to sweep over; give at least one"),
    Case("a range with step 0", "train -m seed=range(0,9,0)", r"seed=range\(0,9,0\): range\(\) arg 3 must not be zero"),
    Case(
        "a huge range", "train -m seed=range(1,1000000000)", r"seed=range\(1,1000000000\): more than 10,000 values; give fewer"
    ),
    Case("an interval", "train -m seed=interval(1,2)", r"seed=interval\(1,2\): an interval cannot be expanded into values; .+"),
    Case("two conflicting flags", "train -m --cfg job", "Only one of --run, --multirun, --cfg, .+ can be specified"),
    Case("a run directory that cannot be created", "train hydra.run.dir=/proc/x", NO_PROC),
    Case("an output directory that cannot be created", "train hydra.output_subdir=/proc/x", NO_PROC),
    Case("a sweep directory that cannot be created", "train -m seed=1,2 hydra.sweep.dir=/proc/x", NO_PROC),
    Case(
        "a pickled configuration",
        "train --experimental-rerun=run/config.pickle",
        "--experimental-rerun=run/config.pickle: a pickle can run any code; leave out this flag; .+",
    ),
    Case("another command's settings", "evaluate --config-name=quiet", "checkpoint is not set: give it as checkpoint=VALUE"),
    Case(
        "a configuration that is a number",
        "train --config-dir=own --config-name=own",
        "Invalid loaded object type: int",
        put("own/own.yaml", "3"),
    ),
    Case(
        "a configuration without the config groups",
        "train --config-dir=own --config-name=own",
        "optim, trainer, checkpoint, search, views, model, data: required, but missing from the configuration",
        put("own/own.yaml", "defaults: [_self_, quiet]\na: 3\n"),
    ),
    Case("an unknown flag", "train --nosuch", "unrecognized arguments: --nosuch; --help lists the flags, .+"),
    Case("a setting written as a flag", "train --model birnn", "--model birnn: settings are .+; write model=birnn"),
    Case("a word alone", "train birnn", r"birnn: not an override; write KEY=VALUE; did you mean model=birnn\?"),
    Case("a flag without its value", "train --cfg", "argument --cfg/-c: expected one argument; .+"),
    Case("a flag that needs another flag", "train --resolve", "The --resolve flag can only be used .+"),
    Case("shell completion without a shell", "train --shell-completion", "Expecting one subcommand .+"),
    Case("an unset variable", "train hydra.job.env_copy=[NO_SUCH]", r"hydra\.job\.env_copy=\[NO_SUCH\]: there is no 'NO_SUCH'"),
    Case("an unknown launcher", "train -m hydra/launcher=x seed=1,2", "hydra/launcher=x: .+Could not find.+"),
    # The `data` command.
    Case(
        "data without files", "data data=files", r"data\.train\.src is not set: .+" + "\n" + r"data\.train\.tgt is not set: .+"
    ),
    Case(
        "data with wrong settings",
        f"data data=files {TRAIN} data.max_words=0 data.batch.max_tokens=x output=3",
        "output=3: give text or null\ndata\\.max_words=0: .+\ndata\\.batch\\.max_tokens=x: .+",
    ),
    Case("data from a missing file", "data data=files data.train=pairs.tsv output=lists", r"pairs\.tsv: no such file"),
    Case("data with a training setting", "data optim.lr=1", r"optim\.lr=1: no such setting; .+"),
    Case(
        "data written below a file",
        f"data data=files {TRAIN} {VALID} output=in.txt/lists",
        r"output=in\.txt/lists: cannot be written \(Not a directory\); give another path",
    ),
    # The embedded corpus.
    Case("a negative number of sentences", "corpus n=-1", "n=-1: give a whole number from 0 to 1000", real=True),
    Case(
        "an unknown split of the grammar",
        "corpus split=tset",
        "split=tset: choose one of train, valid, test, test_long, test_compositional; did you mean test\\?",
        real=True,
    ),
    Case("a word in place of a number", "corpus n=five", "n=five: give a whole number from 0 to 1000"),
]


PAGE = """# Bad inputs and their error messages

This page is written by `python tests/tools/bad_inputs.py`, and `tests/commands/test_bad_input.py` tests every row. Every command ends
with exit code 2 and leaves no file behind. The commands run in a folder with a small corpus (`train.fr`, `train.en`,
...), a text `in.txt` and a trained run, `run`. They contain these abbreviations, in which `...` is a list of settings
that keep training short:
"""


def table() -> str:
    """Runs every case, and returns a Markdown page with a table of the error messages."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        base = prepare(Path(name) / "base")
        for number, case in enumerate(CASES):
            place = Path(shutil.copytree(base, Path(name) / str(number)))
            spoil_files(case, place)
            ended = run(case.command, place, case.stdin)
            if ended.code != 2:
                raise SystemExit(f"{case.what}: ended with {ended.code}\n{ended.err}")
            said = ended.err.replace(str(place), "FOLDER").strip().replace("|", r"\|").replace("\n", "<br>")
            command = case.command.encode(errors="backslashreplace").decode().replace("|", r"\|")
            command = command.replace(WORDS, "chat chat ... chat").replace(QUICK, "...")
            rows.append(f"| {case.what} | `{re.sub('x{9,}', 'xxx...', command)}` | {re.sub('x{9,}', 'xxx...', said)} |")
    shorts = [f"- `{name}`: `{text.replace(QUICK, '...')}`" for name, text in SHORT.items()]
    return "\n".join([PAGE, *shorts, "", "| what is wrong | command | error message |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    torch.set_num_threads(1)
    text = table()
    for path in sys.argv[1:]:
        Path(path).write_text(text, encoding="utf-8")
    print(text, end="")
