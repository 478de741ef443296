"""The process in which the Ray tests run drivers. These tests do not use Ray."""

from __future__ import annotations

import pytest

from tests.ray.driver import Driver, DriverEndedByRay, DriverError


def test_a_driver_returns_results(driver: Driver) -> None:
    assert driver.call("json:loads", s="[1]") == [1]


def test_an_exception_of_a_function_is_raised_and_the_driver_continues(driver: Driver) -> None:
    with pytest.raises(DriverError, match="JSONDecodeError"):
        driver.call("json:loads", s="[")
    assert driver.call("json:loads", s="1") == 1


def test_a_driver_that_exits_is_an_error_with_its_exit_code(driver: Driver) -> None:
    with pytest.raises(DriverEndedByRay, match="exit code 1"):
        driver.call("os:_exit", status=1)
    assert not driver.is_running
