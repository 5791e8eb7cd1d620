"""Fixtures of plans and of a space of networks, for the laboratory."""

from tests.nas.derivation.conftest import bench as bench
from tests.pipeline.conftest import plan_with as plan_with
