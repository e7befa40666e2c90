with counted as (
    select
        namespace,
        queue,
        date_trunc('day', hour) as day,
        sum(published) as messages
    from {{ ref('queue_hours') }}
    group by namespace, queue, date_trunc('day', hour)
)

select
    coalesce(archived.namespace, counted.namespace) as namespace,
    coalesce(archived.queue, counted.queue) as queue,
    coalesce(archived.day, counted.day) as day,
    coalesce(archived.messages, 0) as archived,
    coalesce(counted.messages, 0) as counted
from {{ ref('queue_days') }} as archived
full outer join counted
    on archived.namespace = counted.namespace
    and archived.queue = counted.queue
    and archived.day = counted.day
