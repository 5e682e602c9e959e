"""The command line: ``sojourn`` and ``kubectl sojourn``; the one room with typer and rich."""
