"""Step time from a concurrency sweep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import FitRefused, ModelDomainError
from sojourn.model.fit_continuous import fit_continuous


@given(
    fixed=st.floats(1e-3, 0.05),
    per_request=st.floats(1e-6, 1e-3),
    per_token=st.floats(1e-7, 1e-4),
    prompt=st.integers(1, 8192),
    output=st.integers(1, 4096),
)
def test_a_sweep_that_follows_the_law_gives_its_parts_back(
    fixed: float, per_request: float, per_token: float, prompt: int, output: int
) -> None:
    sizes = np.array([1, 4, 16, 64])
    itl = fixed + (per_request + per_token * prompt / output) * sizes
    ttft = np.full(4, fixed + per_token * prompt)
    found = fit_continuous(sizes, itl, ttft, (prompt, output))
    assert found.iteration.fixed_s == pytest.approx(fixed, rel=1e-4, abs=1e-8)
    assert found.iteration.per_prompt_token_s == pytest.approx(per_token, rel=1e-2, abs=1e-8)
    assert found.is_valid
    assert found.max_relative_error < 1e-3


def test_a_first_token_slower_than_the_slope_allows_never_makes_b_negative() -> None:
    found = fit_continuous([1, 8], [0.010, 0.011], [5.0, 5.0], (1024, 1024))
    assert found.iteration.per_request_s == 0
    assert found.iteration.per_prompt_token_s == pytest.approx(0.001 / 7, rel=1e-3)


def test_llama_3_70b_on_h200_is_linear_within_two_percent() -> None:
    """aiconfigurator silicon_sample.csv, llama-3.1-70b fp8 tp1, trtllm, 1024/1024."""
    sizes = [4, 8, 16, 32, 64, 128]
    itl = [0.020114, 0.021122, 0.022987, 0.025802, 0.032335, 0.044919]
    ttft = [0.56218, 0.63397, 0.71094, 0.92409, 1.3451, 1.8822]
    found = fit_continuous(sizes, itl, ttft, (1024, 1024))
    assert found.iteration.fixed_s == pytest.approx(0.0195, rel=0.01)
    assert found.max_relative_error < 0.02
    assert found.is_valid


def test_one_concurrency_or_missing_rows_are_refused() -> None:
    with pytest.raises(FitRefused):
        fit_continuous([8, 8], [0.01, 0.01], [0.1, 0.1], (100, 100))
    with pytest.raises(FitRefused):
        fit_continuous([1, 8], [0.01, 0.02], [0.1], (100, 100))
    with pytest.raises(ModelDomainError):
        fit_continuous([1, 8], [0.01, 0.02], [0.1, 0.1], (0, 100))
