"""The SQL queries over the tasks' counts."""

from __future__ import annotations

PARTS = ("deciding", "waiting", "answering", "whole")
"""Parts of a batch's latency: until its partition is decided, sent, acknowledged; the whole."""

WHOLE = PARTS.index("whole")

KINDS = ("histogram", "seconds", "decisions", "exclusions")
"""The kinds of counts. Each is a folder of the table of counts, and a view in the queries."""

BUCKETS = 32
"""Of a histogram of latencies, per power of two seconds."""

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)

LATENCY = f"""
SELECT run, part, topic, broker, partition,
       CAST(round(sum(batches)) AS BIGINT) AS batches,
       1e3D * sum(total_s) / sum(batches) AS avg_ms,
       percentile(1e3D * pow(2, (bucket + 0.5D) / {BUCKETS}), array{QUANTILES},
                  CAST(round(batches) AS BIGINT)) AS quantiles_ms,
       1e3D * max(longest_s) AS max_ms
FROM histogram
GROUP BY GROUPING SETS ((run, part), (run, part, topic), (run, part, broker),
                        (run, part, topic, partition))
ORDER BY run, part, topic NULLS FIRST, broker NULLS FIRST, partition NULLS FIRST
"""  # noqa: S608 - constants only

CURVES = f"""
SELECT run, bucket, CAST(round(sum(batches)) AS BIGINT) AS batches FROM histogram
WHERE part = {WHOLE}
GROUP BY run, bucket ORDER BY run, bucket
"""  # noqa: S608 - constants only

TOTALS = """
SELECT run, CAST(round(sum(batches)) AS BIGINT) AS batches,
       CAST(round(coalesce(sum(records) FILTER (WHERE error IS NULL), 0)) AS BIGINT) AS records,
       CAST(round(coalesce(sum(bytes) FILTER (WHERE error IS NULL), 0)) AS BIGINT) AS bytes,
       CAST(round(coalesce(sum(records) FILTER (WHERE error IS NOT NULL), 0)) AS BIGINT)
         AS failed_records,
       CAST(round(sum(retried)) AS BIGINT) AS retried_batches,
       max(last_s) - min(first_s) AS seconds
FROM seconds GROUP BY run ORDER BY run
"""

ERRORS = """
SELECT run, error, CAST(round(sum(batches)) AS BIGINT) AS batches,
       CAST(round(sum(records)) AS BIGINT) AS records
FROM seconds WHERE error IS NOT NULL GROUP BY run, error ORDER BY run, records DESC, error
"""

SKEW = """
WITH sent AS (
  SELECT run, second, topic, partition, broker, sum(bytes) AS bytes, sum(records) AS records
  FROM seconds WHERE broker >= 0 GROUP BY run, second, topic, partition, broker
), places AS (
  SELECT run, topic, count(DISTINCT partition) AS partitions FROM sent GROUP BY run, topic
), nodes AS (
  SELECT run, count(DISTINCT broker) AS brokers FROM sent GROUP BY run
), by_partition AS (
  SELECT run, second, topic, sum(records) AS records, sum(bytes) AS bytes, max(bytes) AS most
  FROM (SELECT run, second, topic, partition, sum(bytes) AS bytes, sum(records) AS records
        FROM sent GROUP BY run, second, topic, partition)
  GROUP BY run, second, topic
), by_broker AS (
  SELECT run, second, sum(records) AS records, sum(bytes) AS bytes, max(bytes) AS most
  FROM (SELECT run, second, broker, sum(bytes) AS bytes, sum(records) AS records
        FROM sent GROUP BY run, second, broker)
  GROUP BY run, second
)
SELECT run, second, topic, records, bytes,
       most * partitions / bytes AS partition_skew, CAST(NULL AS DOUBLE) AS broker_skew
FROM by_partition JOIN places USING (run, topic) WHERE bytes > 0
UNION ALL
SELECT run, second, NULL, records, bytes, NULL, most * brokers / bytes
FROM by_broker JOIN nodes USING (run) WHERE bytes > 0
"""
"""Bytes of the largest partition or broker in a second, divided by the mean over all used: of
partitions a row for each second and topic, of brokers a row for each second."""

SKEWED = """
SELECT run, percentile_approx(partition_skew, 0.5) AS partition_skew_p50,
       percentile_approx(partition_skew, 0.99) AS partition_skew_p99,
       percentile_approx(broker_skew, 0.5) AS broker_skew_p50,
       percentile_approx(broker_skew, 0.99) AS broker_skew_p99
FROM skew GROUP BY run
"""

SERIES = """
SELECT s.run, broker, bin_s, CAST((second - begun) DIV bin_s AS INT) AS bin,
       sum(bytes) AS bytes, sum(records) AS records
FROM seconds s
     JOIN (SELECT run, min(second) AS begun,
                  CAST(ceil((max(second) - min(second) + 1) / :bins) AS BIGINT) AS bin_s
           FROM seconds GROUP BY run) l ON s.run = l.run
WHERE broker >= 0
GROUP BY s.run, broker, bin_s, bin ORDER BY s.run, broker, bin
"""
"""At most ``:bins`` bins of equal length, in whole seconds."""

DECISIONS = """
SELECT run, broker, bound_by, CAST(round(sum(batches)) AS BIGINT) AS batches,
       1e3D * sum(total_s) / sum(batches) AS took_ms,
       1e3D * sum(others_s) / sum(batches) AS others_ms,
       1e3D * sum(best_s) / sum(batches) AS best_ms,
       sum(regretted) / sum(batches) AS regretted
FROM decisions
GROUP BY GROUPING SETS ((run, is_chosen), (run, broker, is_chosen), (run, bound_by))
HAVING is_chosen IS NULL OR is_chosen
ORDER BY run, broker NULLS FIRST, bound_by NULLS FIRST
"""
"""Of a run and of each broker: the batches whose partition the producer chose. By kind of
decision: all batches."""

EXCLUSIONS = """
SELECT run, broker, error AS reason, CAST(sum(batches) AS BIGINT) AS times
FROM exclusions GROUP BY run, broker, error ORDER BY run, broker, error
"""

PLACES = """
SELECT run, topic, broker, count(DISTINCT partition) AS partitions
FROM seconds WHERE chosen > 0 GROUP BY run, topic, broker
"""

CHOICES = """
SELECT run, topic, second DIV 3600 AS hour, second, broker,
       sum(chosen) AS chosen, sum(chosen_s) AS chosen_s
FROM seconds WHERE chosen > 0 GROUP BY run, topic, second, broker
"""
"""The batches whose broker was chosen, per second."""

BLOCKS = """
SELECT b.run, (block - begun) DIV length AS block, sum(batches) AS batches,
       sum(actual_s) AS actual_s, sum(uniform_s) AS uniform_s, sum(assumed) AS assumed,
       sum(unjudged) AS unjudged
FROM blocks b
     JOIN (SELECT run, min(block) AS begun,
                  CAST(ceil((max(block) - min(block) + 1) / :most) AS BIGINT) AS length
           FROM blocks GROUP BY run) l ON b.run = l.run
GROUP BY b.run, (block - begun) DIV length ORDER BY 1, 2
"""
"""At most ``:most`` blocks of equal length for each run."""
