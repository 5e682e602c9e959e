"""Catalogue: models and GPUs known by name, with the source of every figure.

Data files lie in ``data/`` and are read on first use; look-ups never touch a file again. A name
nobody knows raises an error that carries the nearest names. What a user adds comes in as a mapping
(``additions.py``) or as a Hugging Face config (``huggingface.py``); reading files is the caller's.
"""

from sojourn.catalogue.catalogue import Catalogue

__all__ = ["Catalogue"]
