"""Messages by number and version, as a text describes them (`description`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkastore.errors import UnsupportedFormatError
from kafkastore.formats.messages.description import Description, parse_descriptions
from kafkastore.formats.messages.message_codec import StructCodec

Values = dict[str, Any]
"""The fields of a structure by name: numbers, str, bytes, None, tuples and such dicts."""


class MessageTable:
    """The messages of one kind; their codecs are made at their first use."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._descriptions: Mapping[int, Description] | None = None
        self._codecs: dict[tuple[int, int | None], StructCodec] = {}

    @property
    def descriptions(self) -> Mapping[int, Description]:
        """The messages by number."""
        if self._descriptions is None:
            self._descriptions = parse_descriptions(self._text)
        return self._descriptions

    def name(self, number: int) -> str | None:
        """Return Kafka's name of a message; None if its number is unknown."""
        description = self.descriptions.get(number)
        return None if description is None else description.name

    def codec(self, number: int, version: int | None) -> StructCodec | None:
        """Return the codec of a message, None if it is unknown.

        The codec of its key, if `version` is None.
        """
        wanted = (number, version)
        try:
            return self._codecs[wanted]
        except KeyError:
            pass
        description = self.descriptions.get(number)
        if description is None:
            return None    # not kept: clients choose numbers and versions
        if version is None:
            codec = StructCodec(description.key, 0, False)
        elif version in description.versions:
            codec = StructCodec(description.fields, version, version in description.flexible)
        else:
            return None
        return self._codecs.setdefault(wanted, codec)

    def known_codec(
        self, number: int, version: int, *, position: int | None = None
    ) -> StructCodec:
        """Return the codec of a message.

        Raises `UnsupportedFormatError` if its number or version is unknown; `position` is that of
        the version's bytes.
        """
        codec = self.codec(number, version)
        if codec is None:
            if number not in self.descriptions:
                raise UnsupportedFormatError(f"unknown message {number}", position=position)
            name, oldest, newest = self._known_versions(number)
            raise UnsupportedFormatError(
                f"version of {name} must be from {oldest} to {newest}, got {version}",
                position=position,
            )
        return codec

    def _known_versions(self, number: int) -> tuple[str, int, int]:
        description = self.descriptions[number]
        return description.name, *description.versions
