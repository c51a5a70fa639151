"""The generated table of settings, `schema.json`, so that defaults and help need neither torch nor the code that uses them.

It is made from the signatures, by `python -m entente.commands.schema`, and registered in Hydra's ConfigStore: the table
"train" as `_train`, "model/birnn" as `_birnn` of the group `model`. A file of configs/ names its table in its defaults list
and holds only what differs from it.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, is_typeddict

import yaml
from hydra.core.config_store import ConfigStore

from entente.config.schema import MISSING, Setting, allowed, settings_of

FILE = Path(__file__).with_name("schema.json")

Table = dict[str, dict[str, Any]]  # by dotted key: default (not of the keys inside a value), allowed and comment, both in words


def table(target: Callable[..., Any], given: Collection[str] = (), prefix: str = "") -> Table:
    """Describes the settings of a signature, those of nested dataclasses under dotted keys. The program supplies `given`."""
    found: Table = {}
    for name, setting in settings_of(target).items():
        key = f"{prefix}{name}"
        if name in given:
            continue
        if dataclasses.is_dataclass(setting.annotation):
            found |= table(setting.annotation, prefix=f"{key}.")  # type: ignore[arg-type]
            continue
        default = MISSING if setting.default is inspect.Parameter.empty else setting.default
        found[key] = {"default": default, **_words(setting)}
        for part in (setting.annotation, *get_args(setting.annotation)):
            if is_typeddict(part):
                found |= {f"{key}.{inner}": _words(one) for inner, one in settings_of(part).items()}
    return found


def _words(setting: Setting) -> dict[str, str]:
    return {"allowed": allowed(setting.annotation), "comment": setting.comment}


def written(tables: Mapping[str, Table]) -> str:
    """The tables as JSON, one line per setting."""
    blocks = []
    for name, settings in tables.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(setting, ensure_ascii=False)}" for key, setting in settings.items()]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


TABLES: dict[str, Table] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def register() -> None:
    """Stores the defaults of each table in Hydra's ConfigStore."""
    for name, settings in TABLES.items():
        group, _, last = name.rpartition("/")
        node: dict[str, Any] = {}
        for key, setting in settings.items():
            if "default" in setting:
                *parts, leaf = key.split(".")
                inner = node
                for part in parts:
                    inner = inner.setdefault(part, {})
                inner[leaf] = setting["default"]
        ConfigStore.instance().store(f"_{last}", node, group or None)


def commented(command: str, config: Mapping[str, Any]) -> str:
    """A composed configuration as YAML, each setting with its comment and what it may be."""
    known = TABLES.get("train", {}) | TABLES.get(command, {})
    for part, values in config.items():
        if isinstance(values, Mapping):
            known |= {f"{part}.{key}": said for key, said in TABLES.get(f"{part}/{values.get('name')}", {}).items()}
    return "\n".join(_lines(config, known, ""))


def _lines(config: Mapping[str, Any], known: Table, prefix: str) -> Iterator[str]:
    for name, value in config.items():
        key, indent = f"{prefix}{name}", "  " * prefix.count(".")
        inner = value if isinstance(value, Mapping) else {}
        text = (
            ""
            if inner
            else " " + yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]
        )
        words = "; ".join(filter(None, (known.get(key, {}).get(said) for said in ("comment", "allowed"))))
        yield f"{indent}{name}:{text}" + (f"  # {words}" if words else "")
        yield from _lines(inner, known, f"{key}.")


register()
