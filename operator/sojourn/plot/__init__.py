"""Plot: figures in files, from numbers that arrive as values.

Each figure is one module: a frozen dataclass of what it shows and a function that writes it. Units
stand in the labels; colours are told apart by colour-blind readers and lines also by their style.
"""
