"""Checks configurations against the settings' classes, and says in one line per problem what is wrong and what to do.

The JSON schema of a class, which pydantic derives, tells what each setting is for and which values it allows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from entente import escape
from entente.errors import InputError
from entente.settings import Section

Kind = TypeVar("Kind", bound=Section)
Schema = Mapping[str, Any]  # of a setting or a section, as JSON
TYPES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text", "null": "null"}
LIMITS = {"minimum": "of at least {}", "exclusiveMinimum": "greater than {}"}
LIMITS |= {"maximum": "of at most {}", "exclusiveMaximum": "less than {}", "pattern": "that matches {}"}
FEW = 12  # settings that a message lists
NEEDS_QUOTES = re.compile(r"\s*|null|true|false|[-+]?(\.?inf|\.?nan|[\d._]+(e[-+]?\d+)?)", re.IGNORECASE)


def validate(kind: type[Kind], values: Mapping[str, Any], where: str = "") -> Kind:
    """Returns the settings. Raises InputError with a line for each problem, which begins with `where`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(*dict.fromkeys(f"{where}{line}" for line in _problems(error, kind, values))) from None


def with_changes(settings: Kind, changes: Mapping[str, Any]) -> Kind:
    """Returns the settings with those changes that are not None. Raises InputError if they are not valid."""
    return validate(type(settings), settings.model_dump() | {key: value for key, value in changes.items() if value is not None})


def _problems(error: ValidationError, kind: type[Section], values: Mapping[str, Any]) -> Iterator[str]:
    details: dict[str, Any] = {}
    for detail in error.errors(include_url=False):
        details.setdefault(_key(detail, values), detail)  # of several alternatives, the first
    settings, values_by_key = settings_of(kind, values), dict(flat(values))
    for key, first in details.items():
        if any(other.startswith(f"{key}.") for other in details):
            continue  # the value is a section, and its own problems are reported
        value = values_by_key.get(key)
        text = first["msg"].removeprefix("Value error, ")
        assignment = f"{key}={to_text(value)}"
        if first["type"] == "missing":
            yield f"{key} is not set: give it as {key}=VALUE"
        elif first["type"] == "extra_forbidden":
            owners = _owners(kind, key)
            names = [*settings, *(name.partition(".")[0] for name in settings)]
            leaves = {name: item for name, item in flat({key: value}) if not isinstance(item, Mapping)} or {key: value}
            for name, item in leaves.items():
                others = f"the settings are {', '.join(settings)}" if len(settings) < FEW else "--help lists the settings"
                rule = f"no such setting{suggestion(name, names) or f'; {others}'}"
                yield f"{name}={to_text(item)}: {f'only {owners} has this setting' if owners else rule}"
        elif first["type"] == "model_type":
            example = next((name for name in settings if name.startswith(f"{key}.")), f"{key}.NAME")
            yield f"{assignment}: give its settings by name, such as {example}=VALUE"
        elif first["type"] == "value_error" and not text.startswith("give "):
            yield from text.splitlines()
        elif first["type"] == "value_error":
            yield f"{key if isinstance(value, Mapping) else assignment}: {text}"
        elif key in settings:
            words, names = allowed(settings[key]), _choices(settings[key])
            items = [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
            likely = (suggestion(item, names) for item in items if item not in names)
            yield f"{assignment}: {'choose' if words.startswith('one of') else 'give'} {words}{next(filter(None, likely), '')}"
        else:
            yield f"{assignment}: {text}"


def _key(detail: Any, values: Any) -> str:
    """Returns the dotted key of an error. pydantic also names the alternatives of a union, which are no keys."""
    parts, node = [], values
    for i, part in enumerate(detail["loc"]):
        is_missing = detail["type"] == "missing" and i == len(detail["loc"]) - 1
        if isinstance(node, Mapping) and (part in node or is_missing):
            parts.append(str(part))
            node = node.get(part)
    return ".".join(parts)


def settings_of(kind: type[Section], values: Mapping[str, Any]) -> dict[str, Schema]:
    """Returns the schema of every setting by its dotted key. values: decide between sections, such as the two models."""
    schema = _schema(kind)
    return dict(_settings("", schema, values, schema.get("$defs", {})))


def _owners(kind: type[Section], key: str) -> str:
    """Returns the options of a section that have a setting, such as model=transformer, or an empty text."""
    part, _, name = key.partition(".")
    mapping = _schema(kind).get("properties", {}).get(part, {}).get("discriminator", {}).get("mapping", {})
    sections = {option: _schema(kind)["$defs"][reference.rpartition("/")[2]] for option, reference in mapping.items()}
    owners = [option for option, section in sections.items() if name in section["properties"]]
    return f"{part}={','.join(owners)}" if owners else ""


@cache
def _schema(kind: type[Section]) -> Schema:
    return kind.model_json_schema()


def is_text(schema: Schema, text: str) -> bool:
    """Returns whether a setting takes what follows its `=` as text, such as 007, no or ${x}, instead of as YAML."""
    types = {form.get("type", "object") for form in schema.get("anyOf", [schema]) if not form.keys() & {"enum", "const"}}
    others = {"null": text == "null", "integer": text.isdecimal(), "array": text[:1] == "[", "object": text[:1] == "{"}
    return "string" in types and not any(others[kind] for kind in types & others.keys())


def _settings(key: str, schema: Schema, value: object, sections: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """Yields the setting `key`, or the settings within it. sections: those that a schema refers to, by name."""
    match schema:
        case {"properties": children}:
            pass
        case {"$ref": reference}:
            children = sections[reference.rpartition("/")[2]]["properties"]
        case {"discriminator": {"mapping": references}}:
            name = value.get("name") if isinstance(value, Mapping) else None
            reference = references.get(str(name)) or next(iter(references.values()))
            yield from _settings(key, {"$ref": reference}, value, sections)
            return
        case {"anyOf": [{"$ref": _} | {"additionalProperties": _} as form, *_]} if isinstance(value, Mapping):
            yield from _settings(key, form, value, sections)
            return
        case {"additionalProperties": item} if isinstance(value, Mapping):
            children = dict.fromkeys(value, item)
        case _:
            yield key, schema
            return
    for name, child in children.items():
        part = value.get(name) if isinstance(value, Mapping) else None
        yield from _settings(f"{key}.{name}" if key else name, child, part, sections)


def allowed(schema: Schema) -> str:
    """Describes in words the values that a setting allows."""
    match schema:
        case {"anyOf": forms}:
            return " or ".join(map(allowed, forms))
        case {"const": _} | {"enum": _}:
            return f"one of {', '.join(_choices(schema))}"
        case {"type": "array", "items": {"type": "array" | "object"} as items}:
            return f"a list of {allowed(items).replace('a list', 'lists')}"
        case {"type": "array", "items": items}:
            low, high = schema.get("minItems", 0), schema.get("maxItems")
            size = f" of {low} to {high} items" if high else f" of {low} or more items" if low else ""
            choices = ", ".join(_choices(items))
            return f"a list of {choices}" if choices else f"a list{size} in which each item is {allowed(items)}"
        case {"type": "object"}:
            return "{KEY: VALUE}"
        case {"$ref": _}:
            return "settings by name"
        case {"minimum": low, "maximum": high, "type": kind}:
            return f"{TYPES[kind]} from {low} to {high}"
        case {"type": kind}:
            limits = [words.format(schema[limit]) for limit, words in LIMITS.items() if limit in schema]
            return " ".join([TYPES[kind], " and ".join(limits)]).strip()
    return "any value"


def _choices(schema: Schema) -> list[str]:
    """Returns the values that a JSON schema enumerates, directly, in its alternatives or in its items."""
    names = [*map(to_text, schema.get("enum", [schema["const"]] if "const" in schema else []))]
    for form in schema.get("anyOf", [schema["items"]] if "items" in schema else []):
        names += _choices(form)
    return names


def suggestion(name: str, names: Iterable[str]) -> str:
    """Returns "; did you mean NAME?" for the same name in another section, else for the most similar name; "" if none is."""
    similar = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]]
    similar += get_close_matches(name, [*names], 1)
    return f"; did you mean {similar[0]}?" if similar else ""


def flat(node: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted key and the value of every setting and every part of a configuration."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}", value
            yield from flat(value, f"{prefix}{key}.")


def to_text(value: object) -> str:
    """Formats a value as on a command line, shortened if long. Strings that YAML would read as other types are quoted."""
    match value:
        case None | True | False:
            text = "null" if value is None else str(value).lower()
        case str():
            text = f"'{value}'" if NEEDS_QUOTES.fullmatch(value) else value
        case Mapping():
            text = f"{{{', '.join(f'{key}: {to_text(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            text = f"[{', '.join(map(to_text, value))}]"
        case _:
            text = str(value)
    return escape.line(text, 80)
