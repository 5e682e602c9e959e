"""Facts: the nouns of the house, as frozen dataclasses.

Seconds, bytes, tokens and fractions inside; milliseconds, GiB and percent exist only where text is
read or printed. Nothing here computes more than a property of itself, and nothing here imports
more than the standard library's data types. A new noun gets one module and one definition.
"""
