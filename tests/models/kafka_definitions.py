"""Kafka's own definitions of messages, from the JSON files in a broker's jars."""

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from golden.make import brokers
from models.message_model import snake_case

from kafkastore.formats.messages.description import (
    NO_VERSIONS,
    Description,
    Field,
    FieldType,
    Versions,
)

_FILE = re.compile(r"(?:common/)?(?:message|metadata)/\w+\.json")
_COMMENT = re.compile(r"(?m)(?:^|(?<=[\s,]))//.*$")
_TYPES = {kind.name.lower(): kind for kind in FieldType} | {"records": FieldType.BYTES}


@cache
def definitions(broker: str) -> Mapping[str, Description]:
    """Return the messages of a broker by Kafka's names."""
    found = {}
    for jar in sorted(brokers.jars(broker).glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for path in archive.namelist():
                if _FILE.fullmatch(path):
                    text = archive.read(path).decode()
                    description = _description(json.loads(_COMMENT.sub("", text)))
                    found[description.name] = description
    return found


def _description(definition: Mapping[str, Any]) -> Description:
    common_structures = definition.get("commonStructs", ())
    structures = {each["name"]: each.get("fields", ()) for each in common_structures}
    versions = _versions(definition.get("validVersions", "none"))
    fields = tuple(_fields(definition.get("fields", ()), versions, structures))
    flexible = _versions(definition.get("flexibleVersions", "none"))
    number = definition.get("apiKey", -1)
    return Description(definition["name"], number, versions, flexible, fields)


def _fields(
    fields: Iterable[dict[str, Any]], within: Versions, structures: Mapping[str, Any]
) -> Iterator[Field]:
    for field in fields:
        text = field["type"].removeprefix("[]")
        kind = FieldType.STRUCT if text[0].isupper() else _TYPES[text]
        versions = common(_versions(field.get("versions", field.get("taggedVersions"))), within)
        parts = field.get("fields") or structures.get(text, ()) if text[0].isupper() else ()
        inner = tuple(_fields(parts, versions, structures))
        yield Field(
            snake_case(field["name"]),
            kind,
            text != field["type"],
            versions,
            common(_versions(field.get("nullableVersions", "none")), within),
            int(field["tag"]) if "tag" in field else None,
            _default(kind, text != field["type"], inner, field.get("default")),
            inner,
            field.get("ignorable", False),
            field.get("flexibleVersions") == "none",
        )


def _versions(text: str) -> Versions:
    if text == "none":
        return NO_VERSIONS
    oldest, _, newest = text.rstrip("+").partition("-")
    return Versions(int(oldest), 2**15 - 1 if text.endswith("+") else int(newest or oldest))


def common(one: Versions, other: Versions) -> Versions:
    """Return the versions in both."""
    both = Versions(max(one.oldest, other.oldest), min(one.newest, other.newest))
    return both if both.oldest <= both.newest else NO_VERSIONS


def _default(
    kind: FieldType, is_array: bool, fields: tuple[Field, ...], value: object
) -> object:
    if value == "null":
        return None
    if is_array:
        return ()
    if kind in (FieldType.STRING, FieldType.BYTES):
        return value or ("" if kind is FieldType.STRING else b"")
    if kind is FieldType.STRUCT:
        return {field.name: field.default for field in fields}
    if kind is FieldType.UUID:
        return None
    if kind is FieldType.BOOL:
        return value in (True, "true")
    return int(str(value or 0), 0)
