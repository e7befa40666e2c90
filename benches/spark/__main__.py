"""Reading into Spark: how fast, and how soon. Run: .venv/bin/python -m benches.spark [--help]"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benches.flight import broker, write_journal
from benches.processes import CpuMeter
from benches.spark import latency, rates
from benches.spark.ceiling import PARTS
from penstock.spark.session import session


def main() -> None:
    given = _arguments()
    options = dict(each.split("=", 1) for each in given.option)
    cases = tuple(case for case in rates.CASES if given.case in case.name)
    with CpuMeter() as meter, tempfile.TemporaryDirectory() as folder:
        spark = session("bench", f"local[{PARTS}]", {"spark.driver.memory": "2g"})
        if given.rows:
            write_journal(folder, given.rows)
            with broker(folder) as addresses:
                rates.compare(
                    spark,
                    meter,
                    rates.Work(addresses["flight"], given.rows, options),
                    cases,
                    given.rounds,
                )
        if given.messages:
            with broker(str(Path(folder, "latency"))) as addresses:
                latency.measure(spark, addresses, given.messages, options)
        spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.spark", description="Reading into Spark.")
    parser.add_argument(
        "--rows", type=int, default=500_000, metavar="N", help="rates: messages of 1 KB (default: 500000); 0: no rates"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rates: rounds of each (default: 3)")
    parser.add_argument("--case", default="", metavar="TEXT", help="rates: only what has this in its name")
    parser.add_argument(
        "--messages", type=int, default=200, metavar="N", help="latency: messages (default: 200); 0: no latency"
    )
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the data source")
    given = parser.parse_args()
    for option in given.option:
        if "=" not in option:
            parser.error(f"--option {option}: it is NAME=VALUE, as in shortCircuit=false")
    if not any(given.case in case.name for case in rates.CASES):
        parser.error(f"--case {given.case}: no case has that in its name; there are {', '.join(map(str, rates.CASES))}")
    return given


if __name__ == "__main__":
    main()
