"""``insight``: events become tables of what each queue did in each minute. See docs/pipelines.md.

What is known of a message before a batch (when it was published, whether it is dead) is a table too, ``state``, which
each batch replaces. So a batch is a function of the events and of what the batch before left: repeated, it gives the
same. Sums leave Spark; the few rows of a minute are put together in ``minutes``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from penstock.spark.pipelines.insight.minutes import COUNTS, GROWTH, MINUTE, InsightState, MinuteSums, QueueKey

STATE = "message long, namespace string, queue string, published_at long, entered_at long, dead boolean, purged_at long"
#: A message that was with a consumer when its queue was purged can still be acknowledged. After a day nobody waits.
PURGED_KEPT = 24 * 3600 * 1_000_000

_ENDS = ("acknowledged", "popped", "dropped")
_PURGES = ("purged", "dead_purged", "queue_deleted")


class BatchSums(NamedTuple):
    """What a batch leads to: the lives that its events continue, and three tables made of them.

    The three are made one after the other: who persists ``lives`` first saves two thirds of the work.
    """

    lives: DataFrame

    #: Sums by queue and minute, and one of: nothing more, reason, talker, bucket.
    sums: DataFrame
    #: When the oldest message came that was in each queue at the end of each minute.
    oldest: DataFrame
    #: What to know before the next batch.
    state: DataFrame


def empty_state(spark: SparkSession) -> DataFrame:
    """What is known before the first batch."""
    return spark.createDataFrame([], STATE)


def transform(
    events: DataFrame, state: DataFrame, since: int, until: int, standing: DataFrame | None = None
) -> BatchSums:
    """What a batch of the view ``events`` adds. ``since`` is the newest time seen before it, ``until`` with it.

    ``state`` has the messages that the events are about, and all of queues that are emptied by them. Of others,
    ``standing`` has the oldest that waits in each queue: namespace, queue, oldest. Without it, ``state`` has them all.

    Times before ``since`` (a clock that was set back) count as ``since``, so that closed minutes stay as they are.
    """
    lives = _lives(_narrow(events, since), state)
    purges = _purges(_narrow(events, since))
    return BatchSums(lives, _sums(_facts(lives)), _oldest(lives, standing, since, until), _state(lives, purges, until))


def seen(events: DataFrame, grain: int) -> DataFrame:
    """One row of what a batch is about.

    How many events, their last position, first and last time, grains of messages, and queues that were emptied.
    """
    emptied = F.when(F.col("kind").isin(*_PURGES), F.struct("namespace", "queue"))
    return events.agg(
        F.count("*"), F.max("position"), F.unix_micros(F.min("at")), F.unix_micros(F.max("at")),
        F.collect_set(_grain(grain)), F.collect_set(emptied),
    )  # fmt: skip


def write_state(state: DataFrame, grain: int, ranges: Iterable[tuple[int, int]], folder: str) -> None:
    """Write the state, a folder for each part: a grain, or a range of grains, which is named for its first."""
    part = _grain(grain)
    for low, high in ranges:
        part = F.when(_grain(grain).between(low, high), F.lit(low)).otherwise(part)
    state.withColumn("part", part).repartition("part").write.partitionBy("part").parquet(folder)


def _grain(size: int) -> Column:
    return F.floor(F.col("message") / size).cast("long")


def _narrow(events: DataFrame, since: int) -> DataFrame:
    """The columns that matter, with times as microseconds, without events that are about no queue."""
    at = F.greatest(F.unix_micros("at"), F.lit(since))
    return events.where("queue is not null and queue != ''").select(
        "message", "position", "kind", at.alias("at"), "namespace", "queue", "reason", "protocol", "peer",
        "deliveries", F.unix_micros("delivered_at").alias("delivered_at"), "payload_size", "count",
    )  # fmt: skip


def _lives(events: DataFrame, state: DataFrame) -> DataFrame:
    """Every event with what was known of its message before it. Rows of the state come first, as kind ``state``.

    All frames begin at the first row of their order, so that Spark adds to what it has: a frame that ends at the last
    one is computed anew for every row. Events of no message have nothing in common, and a partition each.
    """
    before = state.select(
        "message", F.lit(-1).cast("long").alias("position"), F.lit("state").alias("kind"),
        F.col("entered_at").alias("at"), "namespace", "queue", "dead", "published_at", "purged_at",
    )  # fmt: skip
    apart = F.coalesce(F.col("message"), -1 - F.col("position"))
    rows = events.unionByName(before, allowMissingColumns=True).withColumn("apart", apart)
    whole = Window.partitionBy("apart")
    earlier = whole.orderBy("position").rowsBetween(Window.unboundedPreceding, -1)
    later = whole.orderBy(F.desc("position")).rowsBetween(Window.unboundedPreceding, -1)
    published = F.when(F.col("kind") == "published", F.col("at")).otherwise(F.col("published_at"))
    died = F.when(F.col("kind") == "dead", True).when(F.col("kind").isin("published", "redriven"), False)
    ends = F.when(F.col("kind").isin("dead", *_ENDS), F.col("at"))
    came = F.when(F.col("kind").isin("published", "redriven", "state"), F.struct("position", "at"))
    about = F.col("message").isNotNull()
    return (
        rows.withColumn("born", F.when(about, F.max(published).over(whole)))
        .withColumn("was_dead", F.when(about, F.last(F.coalesce(died, F.col("dead")), ignorenulls=True).over(earlier)))
        .withColumn("from_namespace", F.when(about, F.last("namespace", ignorenulls=True).over(earlier)))
        .withColumn("from_queue", F.when(about, F.last("queue", ignorenulls=True).over(earlier)))
        .withColumn("left_at", F.when(about, F.min(ends).over(later)))
        .withColumn("is_last", about & F.lag("position").over(whole.orderBy(F.desc("position"))).isNull())
        .withColumn("came", F.when(about, F.max(came).over(whole)))
        .withColumn("kept_purge", F.when(about, F.max("purged_at").over(whole)))
    )


# -------------------------------------------------------------------------------------------------------------- sums


def _facts(lives: DataFrame) -> DataFrame:
    """A row for each event, with what it adds to the sums of its queue and minute."""
    kind, known = F.col("kind"), F.col("born").isNotNull()
    ends, dead = kind.isin(*_ENDS), F.coalesce(F.col("was_dead"), F.lit(False))
    taken = kind.isin("acknowledged", "popped") & ~dead
    delivered = F.coalesce(F.col("delivered_at"), F.col("at"))
    waiting = (
        F.when(kind.isin("published", "redriven") & known, 1)
        .when((ends | (kind == "dead")) & known & ~dead, -1)
        .when(kind == "purged", -F.col("count"))
    )
    buried = (
        F.when((kind == "dead") & known & ~dead, 1)
        .when(ends & known & dead, -1)
        .when(kind == "dead_purged", -F.col("count"))
    )
    facts = lives.where("kind != 'state'").select(
        "namespace", "queue", _floor("at").alias("minute"),
        *(_one(kind == name).alias(name) for name in ("published", "acknowledged", "popped", "dead", "redriven")),
        F.coalesce(F.col("payload_size"), F.lit(0)).cast("long").alias("bytes_in"),
        _one(F.col("delivered_at").isNotNull() & (F.col("deliveries") > 1)).alias("redelivered"),
        _one(kind.isin("returned", "requeued")).alias("returned"),
        _one(kind.isin("dead", "dropped") & (F.col("reason") == "expired")).alias("expired"),
        _one(kind == "dropped").alias("dropped"),
        F.when(kind.isin("purged", "dead_purged"), F.col("count")).otherwise(0).alias("purged"),
        F.coalesce(waiting, F.lit(0)).alias("waiting"), F.coalesce(buried, F.lit(0)).alias("buried"),
        _one(kind == "queue_deleted").alias("deleted"),
        F.when(kind == "dead", F.col("reason")).alias("why"),
        F.when(kind.isin("published", "acknowledged", "popped"), _host()).alias("talker"), _one(taken).alias("taken"),
        F.when(taken & known, _bucket(delivered - F.col("born"))).alias("in_queue"),
        F.when(kind == "acknowledged", _bucket(F.col("at") - F.col("delivered_at"))).alias("to_acknowledge"),
    )  # fmt: skip
    return facts.unionByName(_moved_out(lives), allowMissingColumns=True)


def _moved_out(lives: DataFrame) -> DataFrame:
    """A dead letter that was sent to another queue is missing where it was."""
    return lives.where("kind = 'redriven' and was_dead").select(
        F.col("from_namespace").alias("namespace"),
        F.col("from_queue").alias("queue"),
        _floor("at").alias("minute"),
        F.lit(-1).cast("long").alias("buried"),
    )


_ADDED = (*COUNTS, "waiting", "buried", "deleted", "taken")
_SETS = ("why", "talker", "in_queue", "to_acknowledge")


def _sums(facts: DataFrame) -> DataFrame:
    """All sums in one go: by queue and minute alone, and with each of the things that are told apart."""
    keys = [F.col(name) for name in ("namespace", "queue", "minute")]
    sets = [keys, *([*keys, F.col(name)] for name in _SETS)]
    sums = [F.sum(name).alias(name) for name in _ADDED]
    which = F.grouping_id().alias("which")
    every = facts.groupingSets(sets, *keys, *map(F.col, _SETS)).agg(which, F.count("*").alias("rows"), *sums)
    told = F.coalesce(*(F.col(name).cast("string") for name in _SETS))
    return every.where((F.col("which") == _NOTHING) | told.isNotNull())


#: What ``grouping_id`` says for each of the sets: a bit for each column that is *not* told apart, the last the lowest.
_NOTHING = 2 ** len(_SETS) - 1
_WHICH = {_NOTHING - 2 ** (len(_SETS) - 1 - at): name for at, name in enumerate(_SETS)}


def _floor(name: str) -> Column:
    return F.floor(F.col(name) / MINUTE).cast("long")


def _one(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0).cast("long")


def _bucket(microseconds: Column) -> Column:
    number = F.ceil(F.log(microseconds) / math.log(GROWTH))
    return F.when(microseconds <= 1, 0).otherwise(number).cast("int")


def _host() -> Column:
    """Protocol and host, without the port, which is another one for each connection."""
    host = F.regexp_replace(F.coalesce(F.col("peer"), F.lit("")), r":\d+$", "")
    return F.concat_ws(" ", F.coalesce(F.col("protocol"), F.lit("")), host)


# ------------------------------------------------------------------------------------------------- oldest, and state


def _purges(events: DataFrame) -> DataFrame:
    """The last time that each queue was emptied."""
    found = events.where(F.col("kind").isin(*_PURGES)).groupBy("namespace", "queue")
    return found.agg(
        F.max(F.when(F.col("kind") != "dead_purged", F.struct("position", "at"))).alias("purge"),
        F.max(F.when(F.col("kind") != "purged", F.struct("position", "at"))).alias("dead_purge"),
    )


def _oldest(lives: DataFrame, standing: DataFrame | None, since: int, until: int) -> DataFrame:
    """For each minute of the batch, when the oldest message came that was in the queue at the minute's end.

    Only the first of those that came in the same minute and were there for the same minutes matters, so what is put in
    order is as much as there are minutes, not messages. In the order in which they came, a message is the oldest from
    the first minute at whose end all before it have gone. These spans do not overlap.
    """
    first, last = since // MINUTE, until // MINUTE
    stays = _stays(lives, first, last).where("low <= high").groupBy("namespace", "queue", "low", "high")
    firsts = stays.agg(F.min("at").alias("oldest"))
    if standing is not None:
        whole = {"low": F.lit(first), "high": F.lit(last)}
        firsts = firsts.unionByName(standing.withColumns(whole))
    earlier = Window.partitionBy("namespace", "queue").orderBy("oldest").rowsBetween(Window.unboundedPreceding, -1)
    gone = F.coalesce(F.max("high").over(earlier) + 1, F.col("low"))
    ruled = firsts.withColumn("low", F.greatest(F.col("low"), gone)).where("low <= high")
    minutes = F.explode(F.sequence(F.col("low").cast("long"), F.col("high").cast("long"))).alias("minute")
    return ruled.select("namespace", "queue", minutes, "oldest")


def _stays(lives: DataFrame, first: int, last: int) -> DataFrame:
    """When messages came into a queue (``at``), and the first and last minute at whose end they were there.

    The next purge is found in the order of a queue, which is one task's work: messages that were gone before the end of
    their minute have no part in it.
    """
    kind, known = F.col("kind"), F.col("born").isNotNull()
    enters = kind.isin("published", "redriven") | ((kind == "state") & ~F.col("dead") & F.col("purged_at").isNull())
    purges = kind.isin("purged", "queue_deleted")
    low = F.greatest(F.lit(first), F.ceil(F.col("at") / MINUTE) - 1)
    later = Window.partitionBy("namespace", "queue").orderBy(F.desc("position"))
    purged = F.min(F.when(purges, F.col("at"))).over(later.rowsBetween(Window.unboundedPreceding, -1))
    stays = lives.withColumn("low", low).where(purges | (enters & known & (low <= _last_end("left_at", last))))
    stays = stays.withColumn("purged", purged).where(enters).withColumn("left", F.least("left_at", "purged"))
    return stays.withColumn("high", _last_end("left", last))


def _last_end(left: str, last: int) -> Column:
    """The last minute at whose end a message was there that left then. Null: it is there, while ``last`` is open."""
    return F.when(F.col(left).isNull(), F.lit(last)).otherwise(
        F.least(F.lit(last - 1), F.ceil(F.col(left) / MINUTE) - 2)
    )


def _state(lives: DataFrame, purges: DataFrame, until: int) -> DataFrame:
    """What is left of each message that is not over."""
    dead = F.when(F.col("kind") == "dead", True).when(F.col("kind") == "redriven", False)
    dead = F.coalesce(dead, F.col("dead"), F.col("was_dead"), F.lit(False))
    lasts = lives.where(F.col("is_last") & F.col("born").isNotNull() & ~F.col("kind").isin(*_ENDS))
    purge = F.when(dead, F.col("dead_purge")).otherwise(F.col("purge"))
    since = F.when(dead, F.col("position")).otherwise(F.col("came.position"))
    purged = F.when(purge["position"] > since, purge["at"])
    found = lasts.join(F.broadcast(purges), ["namespace", "queue"], "left").select(
        "message", "namespace", "queue", F.col("born").alias("published_at"), F.col("came.at").alias("entered_at"),
        dead.alias("dead"),
        F.coalesce("kept_purge", purged).alias("purged_at"),
    )  # fmt: skip
    return found.where(F.col("purged_at").isNull() | (F.col("purged_at") > until - PURGED_KEPT))


# --------------------------------------------------------------------------------------------- into what is remembered


def add(memory: InsightState, outcome: BatchSums, until: int) -> MinuteSums:
    """Run the batch, and add its sums to the minutes that are open."""
    ledger = MinuteSums(memory)
    ledger.forget_oldest(memory.watermark // MINUTE)
    ledger.watermark = until
    for row in outcome.sums.collect():
        _add_sum(ledger.minute(QueueKey(row["namespace"], row["queue"]), row["minute"]), row)
    for row in outcome.oldest.collect():
        ledger.minute(QueueKey(row["namespace"], row["queue"]), row["minute"]).oldest = row["oldest"]
    return ledger


def _add_sum(minute: Any, row: Row) -> None:
    which = _WHICH.get(row["which"])
    if which is None:
        for name in COUNTS:
            minute.counts[name] = minute.counts.get(name, 0) + (row[name] or 0)
        minute.waiting += row["waiting"] or 0
        minute.buried += row["buried"] or 0
        minute.deleted = minute.deleted or bool(row["deleted"])
    elif which == "why":
        minute.reasons[row["why"]] = minute.reasons.get(row["why"], 0) + row["rows"]
    elif which == "talker":
        before = minute.talkers.get(row["talker"], [0, 0, 0])
        added = [row["published"], row["bytes_in"], row["taken"]]
        minute.talkers[row["talker"]] = [had + more for had, more in zip(before, added, strict=True)]
    else:
        histogram = getattr(minute, which)
        histogram[row[which]] = histogram.get(row[which], 0) + row["rows"]
