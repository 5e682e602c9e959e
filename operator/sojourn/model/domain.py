"""Checks of what a formula may be asked: named errors in place of NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sojourn.errors import ModelDomainError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def non_negative(name: str, values: npt.ArrayLike) -> FloatArray:
    """``values`` as floats of the same shape.

    Raises:
        ModelDomainError: one of them is negative or NaN.
    """
    array = np.asarray(values, dtype=float)
    if not np.all(array >= 0):
        raise ModelDomainError(name, _first(array, array >= 0), "0 or more")
    return array


def positive(name: str, values: npt.ArrayLike) -> FloatArray:
    """``values`` as floats of the same shape.

    Raises:
        ModelDomainError: one of them is zero, negative or NaN.
    """
    array = np.asarray(values, dtype=float)
    if not np.all(array > 0):
        raise ModelDomainError(name, _first(array, array > 0), "more than 0")
    return array


def counting(name: str, values: npt.ArrayLike) -> FloatArray:
    """``values`` as floats of the same shape, each a whole number from 1.

    Raises:
        ModelDomainError: one of them is below 1, NaN or not whole.
    """
    array = np.asarray(values, dtype=float)
    whole = (array >= 1) & (np.floor(array) == array)
    if not np.all(whole):
        raise ModelDomainError(name, _first(array, whole), "a whole number, 1 or more")
    return array


def fraction(name: str, values: npt.ArrayLike) -> FloatArray:
    """``values`` as floats of the same shape, each strictly between 0 and 1.

    Raises:
        ModelDomainError: one of them is outside, or NaN.
    """
    array = np.asarray(values, dtype=float)
    inside = (array > 0) & (array < 1)
    if not np.all(inside):
        raise ModelDomainError(name, _first(array, inside), "between 0 and 1")
    return array


def _first(array: FloatArray, valid: BoolArray | np.bool_) -> float:
    return float(np.atleast_1d(array)[np.atleast_1d(~valid)][0])
