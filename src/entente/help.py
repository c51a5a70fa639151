"""Formats the help texts of commands for a terminal with 80 columns."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from entente.settings import MISSING, Section
from entente.validation import Schema, allowed, flat, settings_of, to_text

WIDTH, COLUMN = 80, 34  # characters per line, and the column where explanations of settings start
COMMANDS = Path(__file__).with_name("commands")


def header(verb: str) -> tuple[str, list[str]]:
    """Returns a command's purpose and examples, as in its module's docstring."""
    source = (COMMANDS / f"{verb}.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in (ast.get_docstring(ast.parse(source)) or "").splitlines() if line]
    examples = [line for line in lines if f"entente {verb} " in line]
    return " ".join(line for line in lines if line not in examples), examples


def overview(verbs: Sequence[str]) -> str:
    lines = ["Usage: entente COMMAND [FLAGS] [KEY=VALUE ...]", ""]
    for verb in verbs:
        purpose, examples = header(verb)
        lines += [f"  {verb:10} {purpose.partition('. ')[0].removesuffix('.')}", f"{' ' * 15}{examples[0]}"]
    return "\n".join([*lines, "", "entente COMMAND --help explains a command and lists its settings."])


def help_text(verb: str, kinds: Sequence[type[Section]], values: Mapping[str, object], groups: Mapping[str, list[str]]) -> str:
    """Returns the help of a command: its purpose, examples, config groups, and all settings with their values."""
    purpose, examples = header(verb)
    lines = [*wrap(purpose, WIDTH), "", *(f"  {example}" for example in examples)]
    if groups:
        lines += ["", "Groups of settings, GROUP=OPTION:"]
        for group, names in groups.items():
            lines += wrap(", ".join(names), WIDTH, initial_indent=f"  {group:12}", subsequent_indent=" " * 14)
    lines += ["", "Settings, KEY=VALUE, with their current values:"]
    values_by_key, part = dict(flat(values)), ""
    settings = {key: schema for kind in kinds for key, schema in settings_of(kind, values).items()}
    for key in sorted(settings, key=lambda key: "." in key):  # those of no section first
        if key.partition(".")[0] != part and "." in key:
            part = key.partition(".")[0]
            lines += ["", f"{part}:"]
        lines += _entry(key, values_by_key, settings[key])
    if groups:
        flags = (
            "Flags: --cfg job shows the configuration, -m runs the command once for each value in KEY=1,2, and "
            "--config-dir=FOLDER adds files of your own to the groups, such as FOLDER/ablation/mine.yaml."
        )
        lines += ["", *wrap(flags, WIDTH)]
    return "\n".join(lines)


def _entry(key: str, values: Mapping[str, object], schema: Schema) -> list[str]:
    """Returns the lines for a setting: its key and value, its explanation, and the allowed values."""
    value = values.get(key, schema.get("default", MISSING))
    left = f"  {key}={'VALUE' if value == MISSING else to_text(value).replace(', ', ',')}"
    left = left if len(left) <= WIDTH else f"{left[: WIDTH - 3]}..."
    text = "; ".join(filter(None, ("required" if value == MISSING else "", schema.get("description"), allowed(schema))))
    lines = wrap(text, WIDTH, initial_indent=" " * COLUMN, subsequent_indent=" " * COLUMN)
    return [left, *lines] if len(left) + 2 > COLUMN else [left + lines[0][len(left) :], *lines[1:]]
