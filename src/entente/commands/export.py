"""Write a trained model for CTranslate2 or Hugging Face. The new folder is used without Entente: by CTranslate2, for fast
translation, or by Hugging Face's transformers. It has a README and a script that translates. Some sentences are translated by
both, and compared.

  entente export checkpoint=outputs/RUN format=ctranslate2 output=my-model
  entente export checkpoint=RUN format=ctranslate2 output=new quantization=int8
  entente export checkpoint=outputs/RUN format=huggingface output=my-model
"""

import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from string import Template

from entente import checkpoint
from entente.commands.settings import ExportSettings
from entente.console import Task, log
from entente.data import text
from entente.data.files import read_lines
from entente.data.tokenizer import MAX_PIECES
from entente.decoding.search import length_limit, search_name, translation_search
from entente.decoding.translate import translate_lines
from entente.errors import InputError
from entente.export.formats import write_ctranslate2, write_huggingface
from entente.files import write_text

WRITERS = {"ctranslate2": write_ctranslate2, "huggingface": write_huggingface}
FILES = Path(__file__).parents[1] / "export"
COMPARED = 20  # sentences


def main(settings: ExportSettings) -> None:
    run = checkpoint.load(settings.checkpoint)
    output, search = Path(settings.output), translation_search(run.settings.search).model_copy(update={"n_best": 1})
    if output.exists():
        raise InputError(f"output={output}: exists already; remove it, or give another folder")
    sentences = sentences_to_compare(settings)
    longest = length_limit(search, MAX_PIECES + 1)
    existing = next(path for path in output.absolute().parents if path.is_dir())
    with tempfile.TemporaryDirectory(dir=existing, prefix=".") as scratch, Task(f"writing {output}"):
        folder = Path(scratch) / output.name
        WRITERS[settings.format](run, folder, max(longest, MAX_PIECES + 1), settings.quantization)
        for side in ("src", "tgt"):
            (folder / f"{side}.spm").write_bytes(getattr(run.vocabulary, side).model)
        names = {"src": run.languages[0], "tgt": run.languages[1], "model": run.summary(), "name": output.name}
        names |= {"factor": str(search.length_factor), "offset": str(search.length_offset)}
        names |= {"beam": str(search.beam), "penalty": str(search.length_penalty), "plain": str(run.vocabulary.src.plain)}
        shutil.copy(text.__file__, folder / "text.py")
        for file in (Path("translate.py"), Path("README.md")):
            template = Template((FILES / f"{settings.format}{file.suffix}.txt").read_text(encoding="utf-8"))
            write_text(folder / file, template.substitute(names))
        ours = [best.text for [best] in translate_lines(run.model, run.vocabulary, sentences, search)]
        equal = sum(a == b for a, b in zip(ours, theirs(folder, sentences), strict=True))
        output.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(output)
    log.info("%s: %.1f MB; see its README.md", output, sum(path.stat().st_size for path in output.iterdir()) / 1e6)
    log.info(
        "%d of %d sentences are translated exactly as Entente translates them (%s)", equal, len(sentences), search_name(search)
    )


def sentences_to_compare(settings: ExportSettings) -> list[str]:
    """Returns the first lines of `input`, or the first validation sentences of the run."""
    if settings.input:
        return [*islice(read_lines(Path(settings.input)), COMPARED)]
    path = checkpoint.find(settings.checkpoint).resolve().parent.parent / "translations" / "valid.tsv"
    if not path.is_file():
        raise InputError(f"checkpoint={settings.checkpoint}: there are no sentences to compare; give input=FILE")
    return [line.partition("\t")[0] for line in path.read_bytes().decode().split("\n")[1:-1][:COMPARED]]


def theirs(folder: Path, sentences: list[str]) -> list[str]:
    """Returns the translations that the folder's own script prints."""
    command = [sys.executable, str(folder / "translate.py")]
    lines = "".join(f"{sentence}\n" for sentence in sentences)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)
    if done.returncode:
        problem = done.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
        raise InputError(f"{folder.name}/translate.py: cannot translate ({problem})")
    return done.stdout.decode().removesuffix("\n").split("\n")
