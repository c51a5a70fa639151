"""The command `entente`, and `python -m entente`: a verb, flags of Hydra, and overrides of the verb's configuration.

A verb is two functions, imported only when the overrides are known to compose, since that takes seconds, and a file of
configs/, whose first comment line says what it does.
"""

import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from entente.config.command_line import run
from entente.config.schema import suggestion
from entente.console.endings import endings
from entente.errors import InputError

# Who checks the configuration of a verb, and who runs it.
VERBS = {
    "train": ("commands.train:check", "commands.train:main"),
    "evaluate": ("commands.evaluate:check", "commands.evaluate:evaluate_checkpoint"),
    "translate": ("commands.translate:check", "commands.translate:translate_text"),
    "attention": ("commands.attention:check_attention", "commands.attention:picture_attention"),
    "trace": ("commands.attention:check_trace", "commands.attention:trace_attention"),
    "ablate": ("ablation.suite:check", "ablation.suite:ablate"),
    "compare": ("ablation.comparison:check", "ablation.page:report"),
    "corpus": ("commands.corpus:check", "commands.corpus:main"),
}
HERE = Path(__file__).resolve().parent
# A wheel carries configs/ in the package; a checkout has it at the top. The variable is for the processes of a suite.
PLACES = [Path(os.environ.get("ENTENTE_CONFIGS", HERE / "configs")), HERE.parents[1] / "configs"]
CONFIGS = next((folder for folder in PLACES if folder.is_dir()), PLACES[0])


def main() -> None:
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb in VERBS:
        del sys.argv[1]
        run_verb(verb)
    elif verb == "--version":
        print(f"entente {version('entente')}")
    elif verb in ("", "-h", "--help", "help"):
        print(overview(), file=sys.stdout if verb else sys.stderr)
        sys.exit(0 if verb else 2)
    else:
        with endings():
            raise InputError(f"{verb}: choose one of {', '.join(VERBS)}{suggestion(verb, VERBS)}")


def overview() -> str:
    """Every verb in a line, from the first comment of its configuration."""
    lines = ["Usage: entente VERB [FLAGS] [KEY=VALUE ...]", ""]
    for verb in VERBS:
        comment, _, example = (CONFIGS / f"{verb}.yaml").read_text(encoding="utf-8").partition("\n")[0].partition(":  ")
        lines.append(f"  {verb:10} {comment.removeprefix('# ')}: {example}")
    return "\n".join([*lines, "", "entente VERB --help lists the settings of one."])


def run_verb(verb: str, configs: Path = CONFIGS) -> None:
    """Runs a verb with the overrides in `sys.argv`."""
    os.environ["ENTENTE_CONFIGS"] = str(configs)
    sys.argv[0] = f"entente {verb}"  # what checkpoints and suites record, however it was called
    if verb == "compare" and len(sys.argv) > 1 and "=" not in sys.argv[1] and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"suite={sys.argv[1]}"
    check, main = (partial(_call, place) for place in VERBS[verb])
    run(main, configs, verb, check)


def _call(place: str, config: dict[str, Any]) -> Any:
    return resolve_name(f"entente.{place}")(config)


if __name__ == "__main__":
    main()
