"""The generated table of settings, `schema.json`, so that defaults and help need neither torch nor the code that uses them.

It is made from the signatures, by `python -m entente.commands.schema`, and registered in Hydra's ConfigStore: the table
"train" as `_train`, "model/birnn" as `_birnn` of the group `model`. A file of configs/ names its table in its defaults list
and holds only what differs from it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

FILE = Path(__file__).with_name("schema.json")

Table = dict[str, dict[str, Any]]  # by dotted key: default (not of the keys inside a value), allowed and comment, both in words

TABLES: dict[str, Table] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def register() -> None:
    """Stores the defaults of each table in Hydra's ConfigStore."""
    for name, settings in TABLES.items():
        group, _, last = name.rpartition("/")
        node = OmegaConf.create()
        for key, setting in settings.items():
            if "default" in setting:
                OmegaConf.update(node, key, setting["default"])
        ConfigStore.instance().store(f"_{last}", node, group or None)


def commented(command: str, config: Mapping[str, Any]) -> str:
    """A composed configuration as YAML, each setting with its comment and what it may be."""
    known = TABLES.get("train", {}) | TABLES.get(command, {})
    for part, values in config.items():
        if isinstance(values, Mapping):
            known |= {f"{part}.{key}": setting for key, setting in TABLES.get(f"{part}/{values.get('name')}", {}).items()}
    return "\n".join(_lines(config, known, ""))


def _lines(config: Mapping[str, Any], known: Table, prefix: str) -> Iterator[str]:
    for name, value in config.items():
        key, inner = f"{prefix}{name}", value if isinstance(value, Mapping) else {}
        text = "" if inner else yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]
        words = "; ".join(filter(None, (known.get(key, {}).get(said) for said in ("comment", "allowed"))))
        line = f"{'  ' * prefix.count('.')}{name}: {text}".rstrip()
        yield f"{line}  # {words}" if words else line
        yield from _lines(inner, known, f"{key}.")


register()
