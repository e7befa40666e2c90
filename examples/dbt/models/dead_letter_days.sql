select
    namespace,
    queue,
    date_trunc('day', minute) as day,
    reason,
    sum(messages) as messages
from {{ source('penstock', 'dead_letters') }}
group by namespace, queue, date_trunc('day', minute), reason
