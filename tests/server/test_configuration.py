"""Options: their sources, their error messages, and that the example file contains them all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from msgspec import inspect

from penstock.server.options.broker_options import DEFAULT_FLIGHT, BrokerOptions, FlightListener, HttpListener
from penstock.server.options.configuration import ConfigurationError, Layers, layers, load, variables
from penstock.server.options.environment import is_of_service
from penstock.server.options.option_tree import OptionPath, flat

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "penstock.example.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def complaint(file: Path, text: str) -> str:
    """The error for a file with this text, without the folder."""
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(str(file), {}, {})
    return str(caught.value).replace(str(file), "FILE")


class TestLayers:
    def test_nothing_is_the_defaults(self) -> None:
        assert load(None, {}, {}) == BrokerOptions()

    def test_later_layers_win(self, file: Path) -> None:
        file.write_text('data = "file"\n[journal]\ndurability = "os"\ninterval_ms = 9\n[limits]\nqueues = 7\n')
        environment = {"PENSTOCK_DATA": "environment", "PENSTOCK_JOURNAL_DURABILITY": "interval", "HOME": "/"}
        options = load(str(file), environment, {"--data": (("data",), "flag")})
        assert options.data == "flag"
        assert options.journal.durability == "interval"
        assert (options.journal.interval_ms, options.limits.queues) == (9, 7)

    def test_the_file_can_be_named_by_the_environment(self, file: Path) -> None:
        file.write_text("ephemeral = true")
        assert load(None, {"PENSTOCK_CONFIG": str(file)}, {}).ephemeral

    def test_each_origin_is_known(self, file: Path) -> None:
        file.write_text('data = "x"\n\n[[sspq]]\naddress = "127.0.0.1:1"\n[[sspq]]\naddress = "127.0.0.1:2"\n')
        merged = layers(str(file), {"PENSTOCK_LOG_LEVEL": "debug"}, {"--ephemeral": (("ephemeral",), True)})
        assert merged.origin(OptionPath(("data",))) == f"{file}, line 1"
        assert merged.origin(OptionPath(("sspq", 1, "address"))) == f"{file}, line 6"
        assert merged.origin(OptionPath(("log", "level"))) == "the environment variable PENSTOCK_LOG_LEVEL"
        assert merged.origin(OptionPath(("ephemeral",))) == "the flag --ephemeral"
        assert merged.origin(OptionPath(("limits", "queues"))) == "default"

    def test_a_flag_replaces_the_listeners_of_a_file_and_their_lines(self, file: Path) -> None:
        file.write_text('[[phpmq]]\naddress = "127.0.0.1:1"\n')
        merged = layers(str(file), {}, {"--phpmq": (("phpmq",), ["127.0.0.1:2"])})
        assert [each.address for each in merged.options().phpmq] == ["127.0.0.1:2"]
        assert merged.origin(OptionPath(("phpmq", 0, "address"))) == "the flag --phpmq"

    def test_text_from_the_environment_stays_text(self) -> None:
        options = load(None, {"PENSTOCK_DATA": "123", "PENSTOCK_LIMITS_WINDOW": "12", "PENSTOCK_EPHEMERAL": "true"}, {})
        assert (options.data, options.limits.window, options.ephemeral) == ("123", 12, True)

    def test_every_variable_works(self) -> None:
        for variable in variables():
            Layers().add_environment({variable: "1"})


class TestListeners:
    def test_in_short(self) -> None:
        environment = {
            "PENSTOCK_PHPMQ": "127.0.0.1:1,dialect=32 unix:/tmp/x",
            "PENSTOCK_SSPQ": "127.0.0.1:2,queue=a/b,force_retries=3,dead_letters=false",
            "PENSTOCK_KOKAQ": "off",
        }
        options = load(None, environment, {})
        assert [(each.address, each.dialect) for each in options.phpmq] == [
            ("127.0.0.1:1", "32"),
            ("unix:/tmp/x", None),
        ]
        sspq = options.sspq[0]
        assert (sspq.queue, sspq.force_retries, sspq.dead_letters) == ("a/b", 3, False)
        assert options.kokaq == []

    def test_a_value_with_a_comma(self) -> None:
        flags = {"--http": (("http",), "127.0.0.1:1,lake=/srv/a,b c,d,public_metrics=true")}
        http = load(None, {}, flags).http
        assert http is not None
        assert (http.lake, http.public_metrics) == ("/srv/a,b c,d", True)

    def test_flight(self, file: Path) -> None:
        assert load(None, {}, {}).flight is DEFAULT_FLIGHT
        assert load(None, {"PENSTOCK_FLIGHT": "off"}, {}).flight is None
        short = load(None, {}, {"--flight": (("flight",), "127.0.0.1:1,tls_certificate=1.pem")}).flight
        assert short == FlightListener(address="127.0.0.1:1", tls_certificate="1.pem")
        file.write_text("[flight]\naddress = '127.0.0.1:8815'\n")
        flight = load(str(file), {}, {}).flight
        assert flight == DEFAULT_FLIGHT
        assert flight is not DEFAULT_FLIGHT  # a requested feature must not be dropped silently
        assert load(str(file), {}, {"--flight": (("flight",), "off")}).flight is None
        assert layers(str(file), {}, {}).origin(OptionPath(("flight", "address"))) == f"{file}, line 2"

    def test_an_address_keeps_an_endpoints_other_options(self, file: Path) -> None:
        """Other options stay as configured, because a flag or a variable names only the address."""
        file.write_text("[http]\naddress = '127.0.0.1:1'\npublic_metrics = true\nlake = '/lake'\n")
        flags = {"--http": (("http",), "127.0.0.1:2,lake=/other")}
        merged = layers(str(file), {"PENSTOCK_HTTP_BACKUPS": "/backups", "PENSTOCK_HTTP": "127.0.0.1:3"}, flags)
        http = merged.options().http
        assert http is not None
        assert (http.address, http.public_metrics, http.lake) == ("127.0.0.1:2", True, "/other")
        assert http.backups == "/backups"
        assert merged.origin(OptionPath(("http", "public_metrics"))) == f"{file}, line 3"
        assert merged.origin(OptionPath(("http", "address"))) == "the flag --http"

    def test_an_option_does_not_enable_a_disabled_endpoint(self, file: Path) -> None:
        file.write_text('http = "off"\n')
        public = {"--public-url": (("http", "public_url"), "https://mq.example.com")}
        assert load(str(file), {}, public).http is None
        http = load(str(file), {}, {"--http": (("http",), "127.0.0.1:2"), **public}).http
        assert http == HttpListener(address="127.0.0.1:2", public_url="https://mq.example.com")
        http = load(None, {"PENSTOCK_HTTP_PUBLIC_URL": "https://mq.example.com"}, {}).http
        assert http == HttpListener(public_url="https://mq.example.com")

    def test_invalid_flight_options(self, file: Path) -> None:
        assert "FILE, line 2: flight.address: '1' is not an address" in complaint(file, "[flight]\naddress = '1'\n")
        text = complaint(file, "[flight]\naddress = '0.0.0.0:1'\n")
        assert text.startswith("FILE, line 2: flight.address: 0.0.0.0:1 can be reached from other machines")
        assert "there is no such option" in complaint(file, "[flight]\nport = 1\n")
        with pytest.raises(ConfigurationError, match="name=value, as in"):
            load(None, {"PENSTOCK_FLIGHT": "127.0.0.1:1,tls"}, {})

    @pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "mq.example.com:1", "192.168.0.1:1"])
    def test_remote_addresses_need_tls_or_an_explicit_option(self, address: str) -> None:
        flags = {"--phpmq": (("phpmq",), [address])}
        with pytest.raises(ConfigurationError, match=r"the flag --phpmq: phpmq\[0\].address: .* has no TLS"):
            load(None, {}, flags)
        load(None, {}, {**flags, "--insecure-bind": (("insecure_bind",), True)})
        load(None, {}, {"--phpmq": (("phpmq",), [f"{address},tls_certificate=x.pem"])})

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/tmp/x", "127.9.9.9:1"])
    def test_local_addresses_need_no_tls(self, address: str) -> None:
        load(None, {}, {"--phpmq": (("phpmq",), [address])})


#: A file and its error.
WRONG = [
    (
        '[queues."default/q"]\ndefault_ttl_seconds = 1e13',
        'FILE, line 2: queues["default/q"].default_ttl_seconds: 10000000000000.0 is not accepted; it is ',
    ),
    (
        '[queues."default/q"]\nlock_seconds = 1e13',
        'FILE, line 2: queues["default/q"].lock_seconds: 10000000000000.0 is not accepted; it is ',
    ),
    ("=", "FILE: Invalid statement (at line 1, column 1)"),
    ("x = 1", "FILE, line 1: x: there is no such option; there are: data, ephemeral, phpmq, "),
    ("\n[limits]\nx = 1", "FILE, line 3: limits.x: there is no such option; there are: connections, "),
    ("data = 3", "FILE, line 1: data: 3 is not accepted; it is text"),
    ('ephemeral = "x"', 'FILE, line 1: ephemeral: "x" is not accepted; it is true or false'),
    ('journal.url = "mysql://x"', "FILE, line 1: journal.url: a journal in a database is as in postgresql://"),
    ('ephemeral = true\njournal.url = "postgresql://x"', "FILE, line 2: journal.url: an ephemeral broker keeps"),
    ("journal = 3", "FILE, line 1: journal: 3 is not accepted; it is a table of url, durability, interval_ms, "),
    (
        '[journal]\ndurability = "x"',
        'FILE, line 2: journal.durability: "x" is not accepted; it is one of "commit", "interval", "os"',
    ),
    (
        "[journal]\ninterval_ms = 0",
        "FILE, line 2: journal.interval_ms: 0 is not accepted; it is a whole number from 1 up",
    ),
    (
        '[[access]]\ntoken_sha256 = "secret"\nmay = ["read"]',
        "FILE, line 2: access[0].token_sha256: a token's SHA-256 is 64 hex digits; `penstock config token` makes both",
    ),
    (
        "[limits]\nwindow = 70000",
        "FILE, line 2: limits.window: 70000 is not accepted; it is a whole number from 1 to 65535",
    ),
    ("drain_seconds = -1", "FILE, line 1: drain_seconds: -1 is not accepted; it is a number from 0 to 4294967296"),
    (
        '[queues."a/b"]\nlock_seconds = 0',
        'FILE, line 2: queues["a/b"].lock_seconds: 0 is not accepted; it is a number above 0',
    ),
    (
        '[queues."a/b"]\n[queues."c.d/e"]\non_full = "x"',
        'FILE, line 3: queues["c.d/e"].on_full: "x" is not accepted; it is one of "drop-oldest", "reject"',
    ),
    ("[queues.b]", "FILE, line 1: queues[\"b\"]: queues are named namespace/name, as in default/jobs, not 'b'"),
    (
        '[[access]]\nmay = ["publish"]\n[[access]]\n\nmay = ["pub"]',
        'FILE, line 5: access[1].may[0]: "pub" is not accepted; it is one of "admin", "administer", ',
    ),
    (
        '[[access]]\nmay = "publish"',
        'FILE, line 2: access[0].may: "publish" is not accepted; it is a list, each item one ',
    ),
    ('[[access]]\nuser = "x"', "FILE, line 1: access[0]: may is missing; what must be there: may"),
    ('[[access]]\nmay = []\nnetwork = "zz"', "FILE, line 3: access[0].network: a network is as in 10.0.0.0/8 or "),
    (
        '[[sspq]]\naddress = "127.0.0.1:1"\n[[sspq]]\naddress = "zzz"',
        "FILE, line 4: sspq[1].address: 'zzz' is not an address: it is host:port (port 0 = a free one), ",
    ),
    ('phpmq = ["unix:"]', "FILE, line 1: phpmq[0].address: unix: is followed by the path of the socket"),
    ('[[sspq]]\naddress = "127.0.0.1:1"\nqueue = "x"', "FILE, line 3: sspq[0].queue: a queue is namespace/name"),
    (
        '[[sspq]]\naddress = "127.0.0.1:1"\nproxy_from = ["10.0.0.1"]',
        "FILE, line 3: sspq[0].proxy_from: proxy_from limits who may send PROXY headers, and proxy_protocol is off",
    ),
    (
        '[[sspq]]\naddress = "127.0.0.1:1"\nproxy_protocol = true\nproxy_from = ["10.0.0.1", "10.0.0.1/8"]',
        "FILE, line 4: sspq[0].proxy_from[1]: 10.0.0.1/8 has host bits set; it is as in 10.0.0.5 or 10.0.0.0/8",
    ),
    (
        '[[sspq]]\naddress = "unix:/tmp/x"\nproxy_protocol = true\nproxy_from = ["10.0.0.1"]',
        "FILE, line 4: sspq[0].proxy_from: peers of a Unix-domain socket have no address",
    ),
    (
        "[http]\nproxy_protocol = true",
        "FILE, line 2: http.proxy_protocol: there is no such option; there are: address, ",
    ),
    ('[[sspq]]\naddress = "127.0.0.1:1"\ntls_key = "x"', "FILE, line 1: sspq[0]: tls_key and tls_client_ca need a "),
    ('[[kokaq]]\ndialect = "32"', "FILE, line 2: kokaq[0].dialect: there is no such option; there are: address, "),
    # TOML has several notations for the same value
    ('log.level = "x"', 'FILE, line 1: log.level: "x" is not accepted; it is one of "debug", "error", "info", '),
    (
        '[http]\npublic_url = "mq.example.com"',
        "FILE, line 2: http.public_url: expected the URL that browsers use, as in https://",
    ),
    ('[http]\nproxy_from = ["10.0.0.1", "x"]', "FILE, line 2: http.proxy_from[1]: 'x' does not appear to be an IPv4"),
    ('flight = { address = "1" }', "FILE, line 1: flight.address: '1' is not an address"),
    ('data = """\nx = 1\n"""\r\nephemeral = 1', "FILE, line 4: ephemeral: 1 is not accepted; it is true or false"),
    ('phpmq = [\n  "127.0.0.1:1",\n  "x",\n]\ny = 1', "FILE, line 5: y: there is no such option"),
    (
        '[queues]\n"a/b" = { max_depth = -1 }',
        'FILE, line 2: queues["a/b"].max_depth: -1 is not accepted; it is a whole',
    ),
    ("[ limits ] # [x]\n'window' = 0", "FILE, line 2: limits.window: 0 is not accepted"),
    ("[[kokaq]]\ncreate_queues = true", "FILE, line 1: kokaq[0]: address is missing; what must be there: address"),
]


class TestErrors:
    @pytest.mark.parametrize(("text", "expected"), WRONG, ids=[text for text, _ in WRONG])
    def test_in_a_file(self, file: Path, text: str, expected: str) -> None:
        assert complaint(file, text).startswith(expected)

    def test_all_errors_are_reported_at_once(self, file: Path) -> None:
        text = 'x = 1\n[limits]\nwindow = 0\n[[access]]\nmay = ["read", "see"]\nnetwork = "zz"\n'
        file.write_text(f'{text}[queues."a/b"]\npaused = 1\n')
        with pytest.raises(ConfigurationError) as caught:
            load(str(file), {}, {})
        complaints = [str(caught.value), *caught.value.__notes__]
        assert [each.replace(str(file), "FILE").split(";")[0] for each in complaints] == [
            "FILE, line 1: x: there is no such option",
            "FILE, line 3: limits.window: 0 is not accepted",
            'FILE, line 5: access[0].may[1]: "see" is not accepted',
            'FILE, line 8: queues["a/b"].paused: 1 is not accepted',
        ]

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^/missing: No such file or directory$"):
            load("/missing", {}, {})

    def test_a_file_that_is_not_text(self, file: Path) -> None:
        file.write_bytes(b"\xff")
        with pytest.raises(ConfigurationError, match="can't decode byte 0xff"):
            load(str(file), {}, {})

    def test_a_bad_value_in_a_variable(self) -> None:
        expected = (
            r'^the environment variable PENSTOCK_LIMITS_WINDOW: limits.window: "x" is not accepted; it is a whole'
        )
        with pytest.raises(ConfigurationError, match=expected):
            load(None, {"PENSTOCK_LIMITS_WINDOW": "x"}, {})

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("127.0.0.1:1,dialect=9", 'phpmq[0].dialect: "9" is not accepted; it is one of "32", "36", "ttl"'),
            (
                "127.0.0.1:1,x",
                "phpmq: 'x' is not an option of a listener; they follow the address as name=value, as in ",
            ),
            ("127.0.0.1:1,x=1", "phpmq[0].x: there is no such option; there are: address, tls_certificate, "),
            ("127.0.0.1:99999", "phpmq[0].address: '127.0.0.1:99999' is not an address: "),
        ],
    )
    def test_a_bad_listener_in_a_flag(self, value: str, expected: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load(None, {}, {"--phpmq": (("phpmq",), [value])})
        assert str(caught.value).startswith(f"the flag --phpmq: {expected}")


def uncommented() -> str:
    """The example with all its options uncommented."""
    return re.sub(r"^#(?=[\[a-z\"])", "", EXAMPLE.read_text(), flags=re.MULTILINE)


def paths(kind: inspect.Type, path: str = "") -> set[str]:
    """The path of every option, in any list or table."""
    if isinstance(kind, inspect.StructType):
        return {option for each in kind.fields for option in paths(each.type, f"{path}.{each.name}".lstrip("."))}
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        return paths(kind, path)
    inner = kind.item_type if isinstance(kind, inspect.ListType) else getattr(kind, "value_type", None)
    return paths(inner, path) if isinstance(inner, inspect.StructType) else {path}


class TestExample:
    #: Options for which the example shows a use because the default is empty.
    USES = re.compile(r"^(access|queues)|\.dialect$|\.force_retries$")

    def test_as_it_is_it_changes_nothing(self) -> None:
        assert tomllib.loads(EXAMPLE.read_text()) == {}

    def test_with_everything_set_it_loads_and_is_the_defaults(self, file: Path) -> None:
        file.write_text(uncommented())
        options = {str(path): value for path, value in flat(load(str(file), {}, {}))}
        default = {str(path): value for path, value in flat(BrokerOptions())}
        assert {path: value for path, value in options.items() if not self.USES.search(path)} == {
            path: value for path, value in default.items() if not self.USES.search(path)
        }

    def test_it_has_every_option(self) -> None:
        shown = layers_paths(tomllib.loads(uncommented()))
        assert shown == paths(inspect.type_info(BrokerOptions))

    def test_the_rules_of_a_queue_are_the_defaults(self, file: Path) -> None:
        file.write_text(uncommented())
        options = load(str(file), {}, {})
        assert options.queues["default/jobs"] == type(options.queues["default/jobs"])()


def layers_paths(value: object, path: str = "") -> set[str]:
    """The path of every option in a TOML table, as in :func:`paths`."""
    if path == "queues" and isinstance(value, dict):
        return {f"queues.{key}" for rules in value.values() for key in rules}
    if isinstance(value, dict):
        return {option for key, each in value.items() for option in layers_paths(each, f"{path}.{key}".lstrip("."))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {option for each in value for option in layers_paths(each, path)}
    return {path}


#: A pod's variables for services named penstock, penstock-kokaq and penstock-data, with and without named ports.
KUBERNETES = {
    "PENSTOCK_SERVICE_HOST": "10.0.0.1",
    "PENSTOCK_SERVICE_PORT": "9100",
    "PENSTOCK_SERVICE_PORT_PHPMQ": "9100",
    "PENSTOCK_PORT": "tcp://10.0.0.1:9100",
    "PENSTOCK_PORT_9100_TCP": "tcp://10.0.0.1:9100",
    "PENSTOCK_PORT_9100_TCP_PROTO": "tcp",
    "PENSTOCK_PORT_9100_TCP_PORT": "9100",
    "PENSTOCK_PORT_9100_TCP_ADDR": "10.0.0.1",
    "PENSTOCK_KOKAQ_SERVICE_HOST": "10.0.0.2",
    "PENSTOCK_KOKAQ_SERVICE_PORT": "9420",
    "PENSTOCK_KOKAQ_PORT": "tcp://10.0.0.2:9420",
    "PENSTOCK_KOKAQ_PORT_9420_TCP": "tcp://10.0.0.2:9420",
    "PENSTOCK_DATA_PORT_53_UDP_ADDR": "10.0.0.3",
}


class TestVariablesOfOthers:
    def test_a_services_variables_are_ignored(self) -> None:
        merged = layers(None, KUBERNETES, {})
        assert merged.options() == BrokerOptions()
        assert merged.variables == ([], sorted(KUBERNETES), [])

    @pytest.mark.parametrize(
        ("variable", "nearest"),
        [
            ("PENSTOCK_LIMIT_CONNECTIONS", "PENSTOCK_LIMITS_CONNECTIONS"),
            ("PENSTOCK_KOKAK", "PENSTOCK_KOKAQ"),
            ("PENSTOCK_CONFG", "PENSTOCK_CONFIG"),
            ("PENSTOCK_SOMETHING_ELSE_ALTOGETHER", ""),
            ("PENSTOCK_SERVICE_HOSTS", ""),
        ],
    )
    def test_unknown_variables_are_reported_with_the_closest_option(self, variable: str, nearest: str) -> None:
        merged = layers(None, {variable: "1", "PENSTOCK_DATA": "x"}, {})
        assert merged.options() == BrokerOptions(data="x")
        assert merged.variables.unknown == [(variable, nearest)]
        assert merged.variables.services == []

    def test_a_port_that_is_not_a_services(self) -> None:
        """Only the value shows it: the one from Kubernetes is a URL."""
        variables = layers(None, {"PENSTOCK_PORT": "9100"}, {}).variables
        assert ([each.variable for each in variables.unknown], variables.services) == (["PENSTOCK_PORT"], [])

    def test_variables_of_other_programs_are_known(self) -> None:
        assert layers(None, {"PENSTOCK_TOKEN": "t", "HOME": "/"}, {}).variables == ([], [], [])

    def test_a_bad_value_of_a_known_one_is_an_error_beside_unknown_ones(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^the environment variable PENSTOCK_LIMITS_WINDOW: "):
            layers(None, {"PENSTOCK_X": "1", "PENSTOCK_LIMITS_WINDOW": "x"}, {}).options()

    def test_no_option_has_a_name_that_a_service_could_have(self) -> None:
        """A service's name may be anything that begins with penstock, so all variables with these endings may exist."""
        assert [each for each in variables() if is_of_service(each, "tcp://10.0.0.1:9100")] == []
