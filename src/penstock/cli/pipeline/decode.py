"""``penstock pipeline decode``."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.errors import INTERRUPTED
from penstock.cli.output import note, print_json, say
from penstock.cli.pipeline.flags import DEFAULT_LAKE, EXIT_CODES, SPARK, options
from penstock.cli.pipeline.running import started
from penstock.protocols import having

_CAPTURES = [
    click.argument("files", nargs=-1, required=True),
    click.option("--output", default=f"{DEFAULT_LAKE}/frames", metavar="DIR", help="[default: penstock-lake/frames]"),
    click.option(
        "--protocol",
        type=click.Choice([each.name for each in having("capture")]),
        help="[default: detected from the first bytes]",
    ),
    click.option(
        "--direction", type=click.Choice(["to_server", "to_client"]), help="Of plain captures. [default: as above]"
    ),
    click.option(
        "--port", "ports", type=click.IntRange(1, 65535), multiple=True, help="Only these ports, of packet captures."
    ),
    click.option("--payloads", is_flag=True, help="Include the payloads."),
]


@click.command("decode", epilog=EXIT_CODES)
@options(_CAPTURES, SPARK)
def command(files: tuple[str, ...], **flags: Any) -> int:
    """Turn captures of PHPMQ, SSPQ and Kokaq into a table of frames, with offsets and errors.

    FILES are paths, folders or patterns: pcap, pcapng, or plain files with the bytes of one direction of a connection.
    The table is replaced.

    \b
    Examples:
      penstock pipeline decode capture.pcap
      penstock pipeline decode "captures/*.pcap" --port 9100 --payloads --output frames
      penstock pipeline decode client.bin --protocol sspq --direction to_server
    """
    from penstock.spark.pipelines.decode import main as decoding  # noqa: PLC0415

    found = decoding.find_files(files)
    ports = frozenset(flags["ports"])
    chosen = decoding.DecodeOptions(flags["protocol"], flags["direction"], ports, flags["payloads"])
    with started("decode", flags) as (spark, run):
        done = decoding.run(spark, found, chosen, flags["output"], run)
    if flags["as_json"]:
        result = {"files": len(found), "frames": done.frames, "errors": done.errors}
        print_json({**result, "seconds": round(done.seconds, 3), "done": done.whole})
    elif done.whole:
        note(f"{done.frames:,} frames and {done.errors:,} errors in {len(found):,} files, {done.seconds:.1f} s")
        say(flags["output"])
    else:
        note(f"interrupted: {flags['output']} is unchanged")
    return 0 if done.whole else INTERRUPTED
