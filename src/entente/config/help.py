"""Formats the help text of a command for a terminal with 80 columns."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any

from entente.config.schema import MISSING, flat, to_text
from entente.config.tables import table_for

WIDTH, COLUMN = 80, 34  # characters per line, and the column where explanations of settings start
FLAGS = (
    "Flags: --cfg job shows the configuration, -m runs the command once for each value in KEY=1,2, and --hydra-help lists the "
    "other flags. Write flags before the settings."
)


def header(file: Path) -> tuple[str, list[str]]:
    """Returns a command's purpose and examples, read from the comment at the top of its configuration file. The
    indented lines of the comment are the examples."""
    comment = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    lines = [line.removeprefix("#").removeprefix(" ") for line in comment]
    examples = [line for line in lines if line.startswith("  ")]
    return " ".join(line for line in lines if line not in examples), [example.strip() for example in examples]


def help_text(file: Path, config: Mapping[str, Any], choices: Mapping[str, Sequence[str]]) -> str:
    """Returns the help text of a command: its purpose, examples, config groups (`choices`), and all settings with values."""
    purpose, examples = header(file)
    lines = [*wrap(purpose, WIDTH), "", *(f"  {example}" for example in examples)]
    if choices:
        lines += ["", "Groups of settings, GROUP=OPTION:"]
        for group, options in choices.items():
            lines += wrap(", ".join(options), WIDTH, initial_indent=f"  {group:12}", subsequent_indent=" " * 14)
    lines += ["", "Settings, KEY=VALUE, with their current values:"]
    table = table_for(file.stem, config)
    parts = {key: {key: value} for key, value in config.items() if isinstance(value, Mapping)}
    for part, settings in {"": {key: value for key, value in config.items() if key not in parts}, **parts}.items():
        lines += ["", f"{part}:"] if part else [""]
        for key, value in flat(settings):
            if key in table or not isinstance(value, Mapping):
                lines += _entry(key, value, table.get(key, {}))
    return "\n".join([*lines, "", *wrap(FLAGS, WIDTH)])


def _entry(key: str, value: object, setting: Mapping[str, Any]) -> list[str]:
    """Returns the lines for a setting: its key and value, its comment, and the allowed values."""
    given = "VALUE" if value == MISSING else to_text(value).replace(", ", ",")
    left = f"  {key}" if isinstance(value, Mapping) and value else f"  {key}={given}"
    left = left if len(left) <= WIDTH else f"{left[: WIDTH - 3]}..."
    required = "required" if value == MISSING else ""
    allowed = re.sub(r" \([^()]*\)", "", setting.get("allowed", ""))  # omits the rules for names, which error messages state
    text = "; ".join(filter(None, (required, setting.get("comment"), allowed)))
    lines = wrap(text, WIDTH, initial_indent=" " * COLUMN, subsequent_indent=" " * COLUMN)
    if len(left) + 2 > COLUMN or not lines:
        return [left, *lines]
    return [left + lines[0][len(left) :], *lines[1:]]
