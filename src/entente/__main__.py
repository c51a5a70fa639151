"""The command `entente`, or `python -m entente`, which takes a verb, Hydra's flags, and overrides of the verb's configuration.

The configuration file of a verb, configs/VERB.yaml, opens with a comment that describes the verb.
"""

import json
import sys
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

from entente.config.command_line import run_named
from entente.config.help import header
from entente.config.schema import suggestion
from entente.console.endings import endings
from entente.errors import InputError

# Maps a verb to the class of its settings (or a function that checks its configuration) and to the function that runs it.
VERBS = {
    "train": ("entente.commands.train:check", "entente.commands.train:main"),
    "evaluate": ("entente.commands.evaluate:Evaluate", "entente.commands.evaluate:evaluate_checkpoint"),
    "translate": ("entente.commands.translate:Translate", "entente.commands.translate:translate_text"),
    "attention": ("entente.commands.attention:Attention", "entente.commands.attention:picture_attention"),
    "trace": ("entente.commands.attention:Trace", "entente.commands.attention:trace_attention"),
    "ablate": ("entente.ablation.suite:check", "entente.ablation.suite:ablate"),
    "compare": ("entente.ablation.comparison:Compare", "entente.ablation.page:report"),
    "data": ("entente.commands.data:InspectData", "entente.commands.data:inspect_data"),
    "corpus": ("entente_grammar.show:Show", "entente_grammar.show:show"),
}
HERE = Path(__file__).resolve().parent
# configs/ is in the package if installed as a wheel, or at the top level of a checkout.
CONFIGS = HERE / "configs" if (HERE / "configs").is_dir() else HERE.parents[1] / "configs"


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "help":
        sys.argv[1:3] = [sys.argv[2], "--help"]
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
    """Returns the usage text: for each verb, the first sentence and first example of the comment in its configuration file."""
    lines = ["Usage: entente COMMAND [FLAGS] [KEY=VALUE ...]", ""]
    for verb in VERBS:
        purpose, examples = header(CONFIGS / f"{verb}.yaml")
        lines += [f"  {verb:10} {purpose.partition('. ')[0].removesuffix('.')}", *(f"{' ' * 15}{one}" for one in examples[:1])]
    return "\n".join([*lines, "", "entente COMMAND --help explains a command and lists its settings."])


def run_verb(verb: str) -> None:
    """Runs a verb with the overrides in `sys.argv`."""
    sys.argv[0] = f"entente {verb}"  # the command recorded in checkpoints and suites, even for `python -m entente`
    if verb == "compare" and "help" not in sys.argv[1:]:  # the arguments before the first flag or setting are directories
        places = list(takewhile(lambda argument: "=" not in argument and not argument.startswith("-"), sys.argv[1:]))
        sys.argv[1 : 1 + len(places)] = [f"runs={json.dumps(places, ensure_ascii=False)}"] * bool(places)
    run_named(CONFIGS, verb, *VERBS[verb])


if __name__ == "__main__":
    main()
