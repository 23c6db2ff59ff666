"""The connectors there are, by name: a Java class name, its last part, or `module:Class` of Python."""

from __future__ import annotations

import importlib

from connectors.api import ConfigError, Connector
from connectors.sinks.file import FileSink
from connectors.sinks.objects import ObjectSink
from connectors.sources.file import FileSource

BUILT_IN: tuple[type[Connector], ...] = (FileSource, FileSink, ObjectSink)


def connector_class(name: str) -> type[Connector]:
    """The class of `connector.class`.

    Raises:
        ConfigError: nothing of that name.
    """
    for built_in in BUILT_IN:
        names = {built_in.__name__, *built_in.aliases, *(alias.rpartition(".")[2] for alias in built_in.aliases)}
        if name in names:
            return built_in
    module, _, attribute = name.partition(":")
    if attribute:
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError({"connector.class": f"{name} cannot be loaded: {error}"}) from None
        if isinstance(found, type) and issubclass(found, Connector):
            return found
        raise ConfigError({"connector.class": f"{name} is not a connector"})
    known = ", ".join(sorted(built_in.__name__ for built_in in BUILT_IN))
    raise ConfigError({"connector.class": f"{name} is not known; there are {known}, or module:Class of your own"})
