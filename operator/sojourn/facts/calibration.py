"""How the live engine compares with its profile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Calibration:
    """What the profile's line is multiplied by.

    Attributes:
        fixed_factor: of T_fixed (a step's fixed part).
        per_request_factor: of t_req (a step's part per request).
        samples: pairs behind it.
        max_relative_error: of the fitted line.
    """

    fixed_factor: float = 1.0
    per_request_factor: float = 1.0
    samples: int = 0
    max_relative_error: float = 0.0

    @property
    def agrees(self) -> bool:
        """The live engine is within 15 % of the profile."""
        return max(abs(self.fixed_factor - 1), abs(self.per_request_factor - 1)) <= 0.15

    @property
    def text(self) -> str:
        """How it reads in the status."""
        return (
            f"the live engine takes {self.fixed_factor:.2f} x T_fixed and "
            f"{self.per_request_factor:.2f} x t_req of the profile ({self.samples} samples, "
            f"error {self.max_relative_error:.0%})"
        )
