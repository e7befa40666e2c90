select
    namespace,
    queue,
    date_trunc('hour', minute) as hour,
    sum(published) as published,
    sum(bytes_in) as bytes_in,
    sum(acknowledged + popped) as taken,
    sum(dead) as dead,
    max(depth) as greatest_depth,
    max_by(depth, minute) as depth_at_end,
    max(oldest_seconds) as oldest_seconds,
    max(in_queue_p95) as slowest_in_queue_p95,
    max(to_acknowledge_p95) as slowest_to_acknowledge_p95
from {{ source('penstock', 'queues') }}
group by namespace, queue, date_trunc('hour', minute)
