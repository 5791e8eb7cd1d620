"""Signs of life by the observer's own clock, and at once on the same machine."""

import os
import subprocess
import sys
from pathlib import Path

from hpo.heartbeat import HeartbeatMonitor, Lease, machine, now_s, own_lease
from tests.sweeping import Clock


def elsewhere(count: int) -> dict[str, str | int]:
    return Lease("far", "another machine", 1, "1", count).as_json()


def test_a_worker_elsewhere_is_dead_after_a_lease_without_a_new_sign() -> None:
    clock = Clock()
    monitor = HeartbeatMonitor(10.0, clock)
    assert monitor.dead_reason(0, elsewhere(1)) is None
    clock.now += 9.9
    assert monitor.dead_reason(0, elsewhere(1)) is None
    clock.now += 0.1
    assert monitor.dead_reason(0, elsewhere(1)) == "its worker on far gave no sign for 10 s"


def test_a_new_sign_begins_the_lease_again() -> None:
    clock = Clock()
    monitor = HeartbeatMonitor(10.0, clock)
    for count in range(5):
        assert monitor.dead_reason(0, elsewhere(count)) is None
        clock.now += 9.0
    assert monitor.dead_reason(0, elsewhere(4)) is None
    clock.now += 1.0
    assert monitor.dead_reason(0, elsewhere(4)) is not None


def test_a_trial_without_any_sign_is_given_a_lease_too() -> None:
    clock = Clock()
    monitor = HeartbeatMonitor(10.0, clock)
    assert monitor.dead_reason(3, None) is None
    clock.now += 10.0
    assert monitor.dead_reason(3, None) == "its worker gave no sign for 10 s"


def test_who_could_not_look_holds_nobody_dead() -> None:
    clock = Clock()
    monitor = HeartbeatMonitor(9.0, clock)
    monitor.begin()
    assert monitor.dead_reason(0, elsewhere(1)) is None
    clock.now += 100.0
    monitor.begin()
    assert monitor.dead_reason(0, elsewhere(1)) is None
    for _ in range(3):
        clock.now += 2.9
        monitor.begin()
        assert monitor.dead_reason(0, elsewhere(1)) is None
    clock.now += 0.3
    monitor.begin()
    assert monitor.dead_reason(0, elsewhere(1)) is not None


def test_a_zombie_is_gone_and_an_unknown_start_says_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            pass
        began = stat.read_text().rpartition(")")[2].split()[19]
        assert HeartbeatMonitor(1000.0).dead_reason(
            0, Lease("h", machine(), process.pid, began).as_json()
        )
    unknown = Lease("h", machine(), process.pid, "").as_json()
    assert HeartbeatMonitor(1000.0).dead_reason(0, unknown) is None


def test_machines_and_containers_on_them_are_told_apart() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot in machine()
    assert os.readlink("/proc/self/ns/pid") in machine()


def test_a_process_of_this_machine_that_ended_is_seen_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        began = stat.rpartition(")")[2].split()[19]
        sign = Lease("here", machine(), process.pid, began).as_json()
        monitor = HeartbeatMonitor(1000.0)
        assert monitor.dead_reason(0, sign) is None
        process.kill()
        process.wait()
        assert monitor.dead_reason(0, sign) == f"its worker (process {process.pid} on here) died"


def test_another_process_with_the_same_number_is_not_the_worker() -> None:
    own = own_lease()
    assert HeartbeatMonitor(1000.0).dead_reason(0, own.as_json()) is None
    earlier = Lease(own.host, own.machine, own.pid, "1").as_json()
    assert HeartbeatMonitor(1000.0).dead_reason(0, earlier) is not None
    assert own.pid == os.getpid()


def test_the_count_grows_and_nothing_else_changes() -> None:
    own = own_lease()
    assert own.next().as_json() == {**own.as_json(), "count": 1}
    assert now_s() <= now_s()
