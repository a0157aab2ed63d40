"""Devices that a test computes on: the CPU, and a GPU where there is one."""

from __future__ import annotations

import pytest

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
CLOSE = {"rtol": 1e-3, "atol": 1e-3}
"""How far float32 figures of two devices may lie apart: they add up in different orders."""
SHARE = 0.95
"""Share of discrete outcomes in which two devices agree at least: the others are decided by figures that nearly tie."""
