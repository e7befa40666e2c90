"""Settings that hold for every test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.demo.postgresql import Server

# Deterministic examples, so that a failure is reproducible everywhere; no deadlines, because machines are busy; and
# nothing written into the checkout. New inputs come from coverage-guided fuzzing.
#: Examples of each property, unless a test sets its own number.
EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "100"))
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
settings.load_profile("repeatable")

#: Name prefixes of long tests: kills, clusters, browsers and whole runs. ``scripts/test --quick`` skips them, and
#: all tests that use the Spark session.
LONG = (
    "cli/test_pipeline.py",
    "cli/test_up.py",
    "console/test_access.py",
    "console/test_pages.py",
    "console/test_states.py",
    "core/test_broker_stateful.py",
    "damage/test_damage.py::test_start_verify_and_repair_agree",
    "failover/test_failover.py::test_nothing_is_lost_or_comes_back_after_any_fault",
    "fuzz/test_fuzz.py::TestCommand",
    "server/test_crash.py::test_killed_brokers_keep_their_promises",
    "server/test_disk_space.py",
    "server/test_full_disk.py",
    "server/test_killed_under_load.py",
    "server/test_leased_under_fire.py",
    "simulate/test_cluster.py::test_brokers_that_take_over_keep_all_promises",
    "simulate/test_simulate.py::test_a_thousand_lives_keep_all_promises",
    "spark/test_cluster.py",
    "spark/test_connect.py",
    "spark/test_fire.py::test_drivers_and_brokers_are_killed",
    "spark/test_java.py",
    "spark/test_project.py",
    "spark/test_registration.py",
    "spark/test_session.py",
    "test_compiled.py::TestCompiled",
    "test_docs.py",
    "test_setup.py",
)

#: Name prefixes of tests that patch modules, count bytecodes, or hold weak references to objects that may be compiled:
#: skipped when compiled modules are used.
FROM_SOURCE = (
    "core/test_budget.py",
    "journal/test_committer.py::test_a_slow_commit_leaves_the_next_to_the_thread",
    "server/test_collector.py",
    "server/test_damaged.py::test_a_request_passes_much_damage_a_part_at_a_time",
    "server/test_kept.py",
    "server/test_lease.py",
    "server/test_message_path.py",
    "server/test_output.py::TestTurns",
    "server/test_promises.py::TestFaultsAndStubbornPeers",
    "server/test_turns.py",
    "wire/test_kokaq.py::TestPushesOfOneSize::test_different_requests_are_tried_once",
    "wire/test_sspq.py::TestMemory::test_thousands_of_small_messages_in_one_chunk_are_one_pass",
    "wire/test_stream.py",
)

# Tests run from source, because they patch parts of it; so do the commands that they start, which inherit this.
# ``test_compiled.py`` runs the tests of the compiled modules again.
os.environ.setdefault("PENSTOCK_COMPILED", "off")

from penstock import compiled  # noqa: E402 - which looks at that variable

# A run in the background of a script inherits that SIGINT is ignored, and so would every command that it starts. The
# tests of Ctrl-C need the terminal's default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long tests. For ``-n 2``, keep each file, and all tests that share the Spark session, in one process.

    Spark's tests run first: they are the longest indivisible part, so the other process has enough work beside them.
    """
    if compiled.state is compiled.State.USED:
        items[:] = [item for item in items if not item.nodeid.removeprefix("tests/").startswith(FROM_SOURCE)]
    for item in items:
        has_session = "spark" in getattr(item, "fixturenames", ())
        if has_session or item.nodeid.removeprefix("tests/").startswith(LONG):
            item.add_marker("long")
        shares = has_session or item.path.name == "test_docs.py"
        item.add_marker(pytest.mark.xdist_group("spark" if shares else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args[0] != "spark")  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared Spark session of a run. It takes ten seconds to start, so it is started on first use."""
    from support.sparks import shared_session

    with shared_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The shared PostgreSQL server of a test process."""
    from support.postgres import running_server

    with running_server() as server:
        yield server


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    """The URL of an empty database of a real PostgreSQL."""
    from support.postgres import fresh_database

    with fresh_database(postgres) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def temporary_folder() -> Iterator[None]:
    """Put private sockets into a folder that is removed afterwards, because a killed broker can't remove its own."""
    folder = tempfile.mkdtemp(prefix="pn")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    yield
    shutil.rmtree(folder, ignore_errors=True)
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
