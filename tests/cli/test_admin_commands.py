"""The commands over the HTTP API, against one real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock import compiled
from penstock.cli.api import ApiAddress
from penstock.cli.queue_rows import COLUMNS
from penstock.cli.top import fitting
from penstock.client import connect
from support import absent
from support.certificates import Authority
from support.commands import COMMAND, Outcome, environment, penstock, penstock_here
from support.terminal import Terminal
from support.web import Api, WebBroker, eventually

NO_ID = "0" * 32
_numbers = count(1)

Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebBroker]:
    with WebBroker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def where(broker: WebBroker) -> list[str]:
    """Options that log in as an admin."""
    return [f"--url={broker.addresses['http']}", f"--token-file={broker.folder / 'admin-token'}"]


@pytest.fixture
def run(where: list[str]) -> Run:
    """Run a command as an admin."""
    return lambda *arguments: penstock_here(*arguments, *where)


@pytest.fixture
def queue(run: Run) -> str:
    """The full name of a new queue that dead-letters a message after one failed delivery."""
    name = f"shop/q{next(_numbers)}"
    assert run("queue", "create", name, "--max-deliveries=1").code == 0
    return name


@pytest.fixture
def dead(queue: str, broker: WebBroker) -> str:
    """A queue with three dead letters."""
    broker.api.publish(queue, "one", "two", "three")
    broker.kill_messages(queue)
    return queue


def counts(api: Api, queue: str) -> dict[str, Any]:
    namespace, _, name = queue.partition("/")
    found: dict[str, Any] = api.get(f"queues/{namespace}/{name}")
    return found


class TestStatus:
    def test_for_people(self, run: Run) -> None:
        eventually(lambda: "phpmq" in run("status").out)  # just after a start the figures may be stale
        code, out, _ = run("status")
        assert code == 0
        facts = dict(line.rstrip().split(maxsplit=1) for line in out.splitlines())
        assert facts["state"] == "takes messages"
        assert "Penstock" in facts["broker"]
        assert facts["code"] == compiled.state.value
        assert facts["phpmq"].startswith("127.0.0.1:")

    def test_as_json(self, run: Run) -> None:
        [report] = run("status", "--json").json
        assert report["ready"] is True

    def test_a_broker_that_refuses_messages(self, run: Run) -> None:
        assert run("drain", "start", "--yes").code == 0
        code, out, _ = run("status")
        assert (code, "takes NO messages: an operator is draining" in out) == (3, True)
        assert run("drain", "show", "--json").json[0]["active"] is True
        assert "not draining" in run("drain", "end").out
        assert run("status").code == 0

    def test_draining_waits_until_all_queues_are_empty(self, run: Run, broker: WebBroker) -> None:
        for each in broker.api.all("queues"):
            run("queue", "purge", each["name"], "--state=ready", "--state=delayed", "--yes")
        [report] = run("drain", "start", "--wait", "--yes", "--json").json
        assert (report["active"], report["messages_left"]) == (True, 0)
        run("drain", "end")


class TestQueues:
    def test_list_sort_filter_and_page(self, run: Run, broker: WebBroker) -> None:
        for number in range(5):
            run("queue", "create", f"list/q{number}")
            if number:
                broker.api.publish(f"list/q{number}", *"x" * number)
        names = [each["name"] for each in run("queues", "list/*", "--sort=ready", "--limit=2", "--json").json]
        assert names == ["list/q4", "list/q3"]
        code, out, err = run("queues", "list", "--limit=2")
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "list/q0", "list/q1"]
        assert "2 of 5; there are more: --all, or --cursor " in err
        rest = run("queues", "list", "--all", "--json", "--cursor", err.split()[-1]).json
        assert [each["name"] for each in rest] == ["list/q2", "list/q3", "list/q4"]
        assert [each["name"] for each in run("queues", "list", "--state=empty", "--json").json] == ["list/q0"]
        assert [each["name"] for each in run("queues", "--contains=LIST/Q3", "--json").json] == ["list/q3"]

    def test_no_queues(self, run: Run) -> None:
        assert run("queues", "missing/*") == (0, "", "there are no such queues\n")

    def test_show_and_configure(self, run: Run, queue: str) -> None:
        [before] = run("queue", "show", queue, "--json").json
        assert before["rules"]["max_deliveries"] == 1
        [after] = run("queue", "configure", queue, "--max-depth=7", "--no-dead-letters", "--json").json
        assert (after["rules"]["max_depth"], after["rules"]["dead_letters"]) == (7, False)
        assert after["rules"]["max_deliveries"] == 1
        code, _, err = run("queue", "configure", queue, "--max-depth=8", f"--if-version={before['version']}")
        assert code == 3
        assert "it was changed meanwhile" in err
        assert "max-depth              7" in run("queue", "show", queue).out

    def test_pause_and_resume(self, run: Run, queue: str) -> None:
        assert run("queue", "pause", queue).err == f"{queue} is paused\n"
        assert run("queues", queue).out.splitlines()[1].endswith("paused")
        assert run("queue", "resume", queue).err == f"{queue} is not paused\n"

    def test_purge_and_delete(self, run: Run, queue: str, broker: WebBroker) -> None:
        broker.api.publish(queue, "a", "b")
        code, _, err = run("queue", "purge", queue)
        assert (code, "This removes 2 messages (ready)" in err, "--yes" in err) == (2, True, True)
        assert run("queue", "delete", queue, "--yes").code == 3
        code, out, _ = run("queue", "purge", queue, "--yes")
        assert (code, out) == (0, f"purge {queue} done: 2 messages\n")
        assert run("queue", "delete", queue).code == 2
        assert run("queue", "delete", queue, "--yes", "--json").json == [{"queue": queue, "deleted": True}]
        assert run("queue", "show", queue).code == 4

    @pytest.mark.parametrize("name", ["orders", "/orders", "shop/", ""])
    def test_invalid_names(self, run: Run, name: str) -> None:
        code, _, err = run("queue", "show", name)
        assert code == 2
        assert f"queues are named NAMESPACE/QUEUE, not {name!r}" in err

    def test_wrong_use(self, run: Run, queue: str) -> None:
        assert run("queue", "create", queue).code == 3
        assert "no rule is given" in run("queue", "configure", queue).err
        assert run("queues", "--all", "--limit=3").code == 2
        assert run("queues", "--cursor=nonsense").code == 2
        assert run("queues", "--state=happy").code == 2
        assert run("queue", "create", "shop/bad", "--max-depth=-1").code == 2


class TestTop:
    def test_once(self, run: Run, queue: str) -> None:
        code, out, _ = run("top", queue, "--once")
        assert code == 0
        lines = out.splitlines()
        assert "takes messages" in lines[0]
        assert "queues: " in lines[1]
        assert (lines[2].split()[0], lines[3].split()[0]) == ("QUEUE", queue)

    def test_as_json(self, run: Run, queue: str) -> None:
        [report] = run("top", queue, "--once", "--json").json
        assert [each["name"] for each in report["queues"]] == [queue]

    def test_repeated_without_a_terminal(self, where: list[str], queue: str) -> None:
        command = [*COMMAND, "top", queue, "--every=0.5", "--json", *where]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as process:
            assert process.stdout is not None
            for _ in range(2):
                assert json.loads(process.stdout.readline())["queues"][0]["name"] == queue
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, b"")

    def test_a_screen_with_keys(self, where: list[str], queue: str) -> None:
        with Terminal([*COMMAND, "top", queue, "--every=60", *where]) as terminal:
            terminal.wait_for(queue)
            terminal.wait_for("by ready, descending")
            terminal.press("d")
            terminal.wait_for("by dead, descending")
            terminal.press("x")
            terminal.wait_for("by dead, ascending")
            terminal.press("q")
            assert terminal.ended() == 0

    @pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
    def test_a_screen_of_any_size_shows_the_essentials(
        self, where: list[str], queue: str, run: Run, width: int
    ) -> None:
        """The screen never has more lines than the terminal, which would cut off the list of keys first."""
        run("queue", "create", f"{queue}-{'long' * 40}")
        for number in range(30):
            run("queue", "create", f"{queue}-{number:02}-with-a-rather-long-name")
        with Terminal([*COMMAND, "top", f"{queue}*", "--every=60", *where], rows=24, columns=width) as terminal:
            for text in ("takes", "QUEUE", "READY", "DEAD", queue[:10], "by", "quit"):
                terminal.wait_for(text)
            terminal.press("q")
            assert terminal.ended() == 0

    def test_columns_are_left_out_one_by_one(self) -> None:
        rows = [(f"shop/{'x' * 100}", *[10**5] * 5, "17 min", "1000.0", "1000.0", "1000.0", "paused")] * 3
        before = 0
        for width in range(20, 140):
            columns, cells = fitting(rows, width)
            assert {"QUEUE", "READY", "DEAD"} <= set(columns)
            assert "OLDEST" in fitting(rows, width, "oldest")[0]
            assert (len(cells), {len(each) for each in cells}) == (3, {len(columns)})
            assert len(columns) >= before
            before = len(columns)
        assert columns == COLUMNS
        assert fitting([], 200) == (COLUMNS, [])

    def test_wrong_use(self, run: Run) -> None:
        assert run("top", "--every=0").code == 2
        assert penstock_here("top", "--once", "--url=http://127.0.0.1:1").code == 1


class TestConfirmation:
    """Questions asked on a terminal."""

    def test_the_name_must_be_typed(self, where: list[str], queue: str, broker: WebBroker) -> None:
        broker.api.publish(queue, "a")
        for typed, code, left in [("wrong", 1, 1), (queue, 0, 0)]:
            with Terminal([*COMMAND, "queue", "purge", queue, *where]) as terminal:
                terminal.wait_for(f"Type {queue} to continue")
                terminal.press(f"{typed}\n")
                assert terminal.ended() == code
            assert counts(broker.api, queue)["ready"] == left

    def test_ctrl_c_asks_about_the_job(self, where: list[str], dead: str, broker: WebBroker) -> None:
        with Terminal([*COMMAND, "dead", "redrive", dead, "--rate=0.01", *where]) as terminal:
            terminal.wait_for("redrive")
            terminal.press("\x03")
            terminal.wait_for("Cancel the job as well?")
            terminal.press("n\n")
            assert terminal.ended() == 130
        [job] = [each for each in broker.api.all("jobs") if each["queue"] == dead]
        assert job["state"] == "running"
        broker.api.do("POST", f"jobs/{job['id']}/cancel")


class TestMessages:
    def test_publish_list_show_and_life(self, run: Run, queue: str, tmp_path: Path) -> None:
        [first, second] = run("messages", "publish", queue, "hello", "w\x1b[31mrld", "--priority=3").out.split()
        found = run("messages", "list", queue, "--json").json
        assert [each["id"] for each in found] == [first, second]
        code, out, _ = run("messages", "list", queue)
        assert (code, "hello" in out, "\x1b" in out) == (0, True, False)
        shown = run("messages", "show", queue, first).out
        assert "hello" in shown
        assert run("messages", "show", queue, first, f"--output={tmp_path / 'payload'}").code == 0
        assert (tmp_path / "payload").read_bytes() == b"hello"
        assert run("messages", "show", queue, first, "--output=-").out == "hello"
        code, out, err = run("messages", "life", queue, first)
        assert (code, "published" in out, err) == (0, True, "now: ready\n")
        assert run("messages", "show", queue, NO_ID).code == 4
        assert run("messages", "show", queue, "xyz").code == 2

    def test_search(self, run: Run, queue: str) -> None:
        run("messages", "publish", queue, '{"order": 17}', '{"order": 18}', "--encoding=json", "--correlation-id=c")
        found = run("messages", "list", queue, "--text=18", "--json").json
        assert [each["payload"]["value"] for each in found] == [{"order": 18}]
        assert len(run("messages", "list", queue, "--correlation-id=c", "--json").json) == 2
        code, out, err = run("messages", "list", queue, "--published-to=2020-01-01")
        assert (code, out, err) == (0, "", f"{queue} has no ready messages like this\n")

    def test_json_keeps_every_digit(self, run: Run, queue: str, tmp_path: Path) -> None:
        text = (
            '{"id":123456789012345678901234567890,"price":1.10,"power":1e2,"long":3.14159265358979323846,"é":"\\u00e9"}'
        )
        [made] = run("messages", "publish", queue, text.replace(",", ", "), "--encoding=json").out.split()
        run("messages", "show", queue, made, f"--output={tmp_path / 'payload'}")
        assert (tmp_path / "payload").read_text() == text
        for command in (["list", queue], ["show", queue, made]):
            assert text in "".join(run("messages", *command).out.split())
            output = run("messages", *command, "--json").out
            assert (text.replace("é", "\\u00e9") in output.replace(" ", ""), output.isascii(), output.count("\n")) == (
                True,
                True,
                1,
            )

    def test_move_and_delete(self, run: Run, queue: str, broker: WebBroker) -> None:
        run("queue", "create", "shop/other")
        run("messages", "publish", queue, "a1", "a2", "b1")
        assert run("messages", "move", queue, "--to=shop/other", "--text=a").code == 0
        assert (counts(broker.api, queue)["ready"], counts(broker.api, "shop/other")["ready"]) == (1, 2)
        code, _, err = run("messages", "delete", "shop/other", "--yes")
        assert (code, "penstock queue purge shop/other" in err) == (2, True)
        [job] = run("messages", "delete", "shop/other", "--text=a1", "--yes", "--json").json
        assert (job["state"], job["done"]) == ("done", 1)

    def test_locks(self, run: Run, queue: str, broker: WebBroker) -> None:
        run("messages", "publish", queue, "locked")
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            assert client.lock() is not None
            [lock] = eventually(lambda: run("messages", "locks", queue, "--json").json)
            assert lock["queue"] == queue
            assert run("messages", "release", lock["message"]).code == 0
            assert run("messages", "release", NO_ID).code == 4
        assert run("messages", "locks", "missing/*").err == "nothing is locked\n"

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["list", "shop/x", "--published-from=yesterday"], "'yesterday' is not a time"),
            (["list", "shop/x", "--hex=xyz"], "hex"),
            (["publish", "shop/x", "{", "--encoding=json"], "is not JSON"),
            (["publish", "shop/x"], "Missing argument"),
            (["move", "shop/x"], "--to"),
            (["show", "shop/x"], "Missing argument"),
        ],
        ids=lambda each: " ".join(each) if isinstance(each, list) else "",
    )
    def test_wrong_use(self, run: Run, arguments: list[str], expected: str) -> None:
        code, _, err = run("messages", *arguments)
        assert code == 2
        assert expected in err


class TestDead:
    def test_list_and_show(self, run: Run, dead: str) -> None:
        [group] = run("dead", "list", dead, "--json").json
        assert (group["queue"], group["reason"], group["count"]) == (dead, "deliveries", 3)
        assert run("dead", "list", dead).out.splitlines()[1].split()[:3] == [dead, "deliveries", "3"]
        assert [each["payload"]["value"] for each in run("dead", "show", dead, "--json").json] == [
            "one",
            "two",
            "three",
        ]
        out = run("dead", "show", dead, "--text=two").out
        assert ("deliveries" in out, "two" in out, "one" in out) == (True, True, False)

    def test_redrive_some_and_all(self, run: Run, dead: str, broker: WebBroker) -> None:
        [two] = run("dead", "show", dead, "--text=two", "--json").json
        assert run("dead", "redrive", dead, two["id"]).out == f"redrive {dead} done: 1 messages\n"
        run("queue", "create", f"{dead}-again")
        assert run("dead", "redrive", dead, f"--to={dead}-again").code == 0
        assert (counts(broker.api, dead)["ready"], counts(broker.api, f"{dead}-again")["ready"]) == (1, 2)

    def test_purge(self, run: Run, dead: str, broker: WebBroker) -> None:
        assert run("dead", "purge", dead).code == 2
        assert run("dead", "purge", dead, "--text=one", "--yes").code == 0
        assert counts(broker.api, dead)["dead"] == 2
        assert run("dead", "purge", dead, "--yes", "--json").json[0]["done"] == 2
        assert counts(broker.api, dead)["dead"] == 0

    def test_missing_things(self, run: Run) -> None:
        assert run("dead", "redrive", "shop/missing").code == 4
        assert run("dead", "redrive", "missing").code == 2
        assert run("dead", "list", "missing/*").err == "there are no dead letters\n"


class TestJobs:
    def test_in_the_background(self, run: Run, dead: str) -> None:
        [job] = run("dead", "redrive", dead, "--rate=1", "--background", "--json").json
        assert job["state"] in ("waiting", "running")
        [cancelled] = run("jobs", "cancel", job["id"], "--json").json
        assert cancelled["state"] == "cancelled"
        assert job["id"] in run("jobs", "list", "--state=cancelled").out
        assert "cancelled" in run("jobs", "show", job["id"]).out
        assert run("jobs", "show", job["id"], "--follow").code == 1
        [resumed] = eventually(lambda: run("jobs", "resume", job["id"], "--json").json)
        assert resumed["state"] == "done"
        assert run("jobs", "show", job["id"], "--follow", "--json").json[0]["done"] == 3

    def test_missing_things(self, run: Run) -> None:
        for what in ("show", "cancel", "resume"):
            assert run("jobs", what, "nosuch").code == 4

    def test_ctrl_c_without_a_terminal_cancels(self, where: list[str], dead: str, broker: WebBroker) -> None:
        command = [*COMMAND, "dead", "redrive", dead, "--rate=0.01", *where]
        known = {job["id"] for job in broker.api.all("jobs")}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        ) as process:
            [job] = eventually(lambda: [each for each in broker.api.all("jobs") if each["id"] not in known])
            eventually(lambda: broker.api.get(f"jobs/{job['id']}")["state"] == "running")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert f"penstock jobs resume {job['id']}" in errors.decode()
        assert broker.api.get(f"jobs/{job['id']}")["state"] == "cancelled"


class TestConnections:
    def test_list_show_and_close(self, run: Run, queue: str, broker: WebBroker) -> None:
        with connect(broker.url("kokaq", f"/{queue}")) as client:
            client.ping()
            [peer] = eventually(lambda: run("connections", "list", "--protocol=kokaq", "--json").json)
            assert "kokaq" in run("connections", "list").out
            assert "kokaq" in run("connections", "show", peer["id"]).out
            assert run("connections", "close", peer["id"]).code == 2
            assert run("connections", "close", peer["id"], "--yes").code == 0
            assert eventually(lambda: run("connections", "show", peer["id"]).code == 4)
        assert run("connections", "show", "x").code == 2
        assert eventually(lambda: run("connections", "list").err == "no client is connected\n")


class TestReadersAndWriters:
    """Over HTTP; ``test_readers_and_writers.py`` tests them over Flight."""

    @pytest.mark.parametrize(
        ("group", "forget", "text"),
        [
            ("readers", "forget", "there are no readers\n"),
            ("writers", "drop", "no writer is remembered\n"),
        ],
    )
    def test_an_empty_list(self, run: Run, group: str, forget: str, text: str) -> None:
        assert run(group, "list") == (0, "", text)
        assert run(group, forget, "x", "--json").json == [{group.removesuffix("s"): "x", "known": False}]
        assert run(group, forget, "x").code == 4


class TestBackup:
    def test_backup_and_restore(self, run: Run, queue: str, broker: WebBroker, tmp_path: Path) -> None:
        broker.api.publish(queue, "kept")
        name = f"b{next(_numbers)}"
        assert "backup done: " in run("backup", "create", name).out
        assert run("backup", "create", name).code == 3
        assert run("backup", "create", "../away").code == 2
        [made] = [each for each in run("backup", "list", "--json").json if each["name"] == name]
        assert name in run("backup", "list").out
        data = tmp_path / "restored"
        assert "start a broker on it" in penstock_here("restore", made["folder"], data).out
        verified = penstock_here("journal", "verify", data)
        assert verified.code == 0, verified
        again = penstock_here("restore", made["folder"], data)
        assert (again.code, "is not empty" in again.err) == (3, True)

    def test_a_file_that_is_no_backup(self, tmp_path: Path) -> None:
        code, _, err = penstock_here("restore", tmp_path, tmp_path / "data")
        assert (code, "is not a backup" in err) == (3, True)
        assert penstock_here("restore", tmp_path / "missing", tmp_path / "data").code == 2


class TestToken:
    def test_create_use_and_revoke(self, run: Run, broker: WebBroker, tmp_path: Path) -> None:
        file = tmp_path / "token"
        [made] = run("token", "create", "viewer", "--where=shop/*", f"--output={file}", "--json").json
        assert (made["may"], made["where"], file.stat().st_mode & 0o777) == (["view"], ["shop/*"], 0o600)
        url = f"--url={broker.addresses['http']}"
        assert penstock_here("queues", url, f"--token-file={file}").code == 0
        assert penstock_here("queues", url, PENSTOCK_TOKEN=file.read_text().strip()).code == 0
        code, _, err = penstock_here("token", "list", url, f"--token-file={file}")
        assert (code, "this takes a token with the right admin" in err) == (3, True)
        assert "viewer" in run("token", "list").out
        assert run("token", "revoke", made["id"]).code == 2
        assert run("token", "revoke", made["id"], "--yes").code == 0
        code, _, err = penstock_here("queues", url, f"--token-file={file}")
        assert (code, "expired or revoked" in err, "penstock token create" in err) == (3, True, True)
        assert run("token", "revoke", made["id"], "--yes").code == 4

    def test_shown_once(self, run: Run) -> None:
        code, out, err = run("token", "create", "ops", "--may=operate", "--expires=90d")
        assert (code, out.startswith("pk_"), "operate on *, expires 20" in err) == (0, True, True)

    def test_wrong_use(self, run: Run, tmp_path: Path) -> None:
        assert "'soon' is not a duration" in run("token", "create", "x", "--expires=soon").err
        assert run("token", "create", "x", "--may=everything").code == 2
        (tmp_path / "there").touch()
        assert run("token", "create", "x", f"--output={tmp_path / 'there'}").code == 1
        assert run("token", "create", "", f"--output={tmp_path / 'new'}").code == 2
        assert not (tmp_path / "new").exists()


class TestDefinitions:
    def test_export_and_import(self, run: Run, queue: str, tmp_path: Path) -> None:
        file = tmp_path / "all.toml"
        assert run("definitions", "export", f"--output={file}").code == 0
        assert run("definitions", "export").out == file.read_text()
        assert run("definitions", "import", file).out == "nothing is different\n"
        assert queue in run("definitions", "export", "--json").json[0]["queues"]
        file.write_text(f'[queues."{queue}"]\nmax_depth = 9\n[queues."shop/new{next(_numbers)}"]\n')
        code, out, err = run("definitions", "import", file, "--dry-run")
        assert code == 0
        assert "max_depth: 0 → 9" in out
        assert "create" in out
        assert err == "nothing was changed: this was a dry run\n"
        assert run("definitions", "import", file).code == 2
        [report] = run("definitions", "import", file, "--yes", "--json").json
        assert (report["applied"], len(report["changes"])) == (True, 2)

    def test_malformed_definitions(self, run: Run, tmp_path: Path) -> None:
        for name, text, expected in [
            ("x.toml", "[[[", "not valid TOML"),
            ("x.json", "{", "body"),
            ("x.json", json.dumps({"queues": {"a/b": {"max_depth": "many"}}}), "max_depth"),
            ("x.yaml", "", "neither .toml nor .json"),
        ]:
            (tmp_path / name).write_text(text)
            code, _, err = run("definitions", "import", tmp_path / name)
            assert (code, expected in err) == (2, True), err


class TestProblems:
    def test_no_broker_listens(self) -> None:
        code, _, err = penstock_here("status", "--url=http://127.0.0.1:1")
        assert code == 1
        assert "http://127.0.0.1:1 does not answer: Connection refused" in err
        assert "penstock serve --http" in err

    def test_the_serving_broker_of_several_is_used(self, where: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.cli.api.CONNECT_SECONDS", 0.2)
        with absent.refusing() as standby, absent.silent() as gone:
            several = where[0].replace("=", f"=http://{standby},http://{gone},")
            assert penstock_here("status", several, where[1]).code == 0
            code, _, err = penstock_here("status", f"--url=http://{standby},http://{standby}/x")
            assert (code, f"http://{standby} and http://{standby}/x do not answer" in err) == (1, True)

    @pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://", "http://127.0.0.1:x", "http+unix:"])
    def test_no_address(self, url: str) -> None:
        code, _, err = penstock_here("status", f"--url={url}")
        assert (code, f"{url!r} is not the address of an HTTP API" in err) == (2, True)

    def test_another_http_server(self, broker: WebBroker) -> None:
        code, _, err = penstock_here("status", f"--url=http://{broker.addresses['kokaq']}")
        assert code == 1
        assert "Traceback" not in err

    def test_no_token(self, broker: WebBroker) -> None:
        code, _, err = penstock_here("status", f"--url={broker.addresses['http']}")
        assert (code, "--token-file" in err, "PENSTOCK_TOKEN" in err) == (3, True, True)

    def test_wrong_tokens(self, broker: WebBroker, tmp_path: Path) -> None:
        url = f"--url={broker.addresses['http']}"
        assert penstock_here("status", url, "--token=wrong").code == 3
        assert penstock_here("status", url, "--token=two\nlines").code == 2
        (tmp_path / "empty").touch()
        assert "is empty" in penstock_here("status", url, f"--token-file={tmp_path / 'empty'}").err

    def test_a_broker_whose_address_is_in_a_variable(self, broker: WebBroker) -> None:
        token = (broker.folder / "admin-token").read_text().strip()
        outcome = penstock("status", "--json", PENSTOCK_URL=broker.addresses["http"], PENSTOCK_TOKEN=token)
        assert (outcome.code, outcome.json[0]["ready"]) == (0, True)


def test_addresses() -> None:
    assert ApiAddress.of("https://mq/proxy/").prefix == "/proxy"
    assert ApiAddress.of("https://mq").port == 443
    assert ApiAddress.of("http+unix:/run/x.sock").path == "/run/x.sock"


def test_over_tls(tmp_path: Path) -> None:
    """The certificate is trusted only if its authority and its name match."""
    authority = Authority(tmp_path / "ca")
    certificate = authority.sign("localhost")
    http = {"address": "127.0.0.1:0", "tls_certificate": str(certificate.path), "tls_key": str(certificate.key)}
    with WebBroker(tmp_path, http=http) as broker:
        where = [f"--url={broker.addresses['http']}", f"--token-file={tmp_path / 'admin-token'}"]
        code, _, err = penstock_here("status", *where)
        assert (code, "--ca FILE names the authority" in err) == (1, True)
        trusted = [*where, f"--ca={authority.path}"]
        assert penstock_here("status", *trusted, "--server-name=localhost").code == 0
        assert penstock_here("status", *trusted, "--server-name=other").code == 1
        (tmp_path / "no.pem").write_text("no certificate")
        assert penstock_here("status", *where, f"--ca={tmp_path / 'no.pem'}").code == 2


def test_over_a_unix_domain_socket(tmp_path: Path) -> None:
    with WebBroker(tmp_path, http=f"unix:{tmp_path / 'http.sock'}") as broker:
        address = broker.addresses["http"]
        assert penstock_here("status", f"--url={address}", f"--token-file={tmp_path / 'admin-token'}").code == 0
        assert penstock_here("status", f"--url=http+unix:{tmp_path / 'missing.sock'}").code == 1
