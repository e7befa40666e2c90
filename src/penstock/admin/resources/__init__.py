"""What travels over the HTTP API, as typed values. Times are RFC 3339 in UTC, durations seconds, sizes bytes."""
