select
    namespace,
    queue,
    date_trunc('day', published_at) as day,
    count(*) as messages,
    sum(octet_length(payload)) as bytes,
    min(position) as first_position,
    max(position) as last_position
from {{ source('penstock', 'messages') }}
group by namespace, queue, date_trunc('day', published_at)
