"""The command line: ``sojourn`` and ``kubectl sojourn``. The only room that knows typer and rich."""
