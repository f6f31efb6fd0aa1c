"""The provider's version; also every event's source.version."""

__version__ = "0.1.0"
