"""Reads the defaults, comments and allowed values of all settings from `schema.json`, so that printing help and checking keys
does not import torch or the code that uses the settings. `python scripts/schema.py` generates `schema.json` from signatures.

Each table in `schema.json` is registered in Hydra's ConfigStore: "train" as `_train`, and "model/birnn" as `_birnn` in the
group `model`. The files in configs/ refer to these tables in their `defaults` lists, and set only the values that differ.
"""

import json
import re
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from entente.config.schema import flat

# Maps a setting's dotted key to its properties. `allowed` and `comment` are text. `values` is a JSON schema, which is absent if
# other settings or the machine also decide what is valid. `default` is absent if it is part of a parent's default.
Table = dict[str, dict[str, Any]]
FILE = Path(__file__).with_name("schema.json")
TABLES: dict[str, Table] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
PLAIN_NAME = re.compile(r"\w[\w-]{0,99}", re.ASCII)  # matches only names that satisfy all types of names in entente.files


def table_for(command: str, config: Mapping[str, Any]) -> Table:
    """Returns the table of a command's settings. In a part such as `model`, the setting `name` selects the part's table."""
    table = TABLES.get("train", {}) | TABLES.get(command, {})
    for key, value in config.items():
        chosen = TABLES.get(f"{key}/{value.get('name')}", {}) if isinstance(value, Mapping) else {}
        table |= {f"{key}.{inner}": setting for inner, setting in chosen.items()}
    return table


def is_surely_valid(key: str, command: str, config: Mapping[str, Any]) -> bool:
    """Returns whether a setting is valid regardless of all others. If False, only the command's own check can decide."""
    setting = table_for(command, config).get(key, {})
    return "values" in setting and _fits(dict(flat(config)).get(key), setting["values"])


def _fits(value: Any, form: Mapping[str, Any]) -> bool:
    """Returns whether a value fits a JSON schema; always False if the schema does not describe a scalar."""
    match form:
        case {"anyOf": forms}:
            return any(_fits(value, one) for one in forms)
        case {"enum": values}:
            return value in values
        case {"const": only}:
            return bool(value == only)
        case {"description": _}:  # a type of name from entente.files
            return isinstance(value, str) and PLAIN_NAME.fullmatch(value) is not None
        case {"type": "integer" | "number" as kind}:
            if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else int | float):
                return False
            above = form.get("minimum", -inf) <= value and form.get("exclusiveMinimum", -inf) < value
            return above and value <= form.get("maximum", inf) and value < form.get("exclusiveMaximum", inf)
        case {"type": "string" | "boolean" | "null" as kind}:
            return isinstance(value, {"string": str, "boolean": bool, "null": type(None)}[kind])
    return False


def register() -> None:
    """Stores the defaults of each table in Hydra's ConfigStore."""
    for name, settings in TABLES.items():
        group, _, last = name.rpartition("/")
        node = OmegaConf.create()
        for key, setting in settings.items():
            if "default" in setting:
                OmegaConf.update(node, key, setting["default"])
        ConfigStore.instance().store(f"_{last}", node, group or None)


register()
