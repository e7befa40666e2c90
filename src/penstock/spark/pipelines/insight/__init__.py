"""``insight``: events become tables of what each queue did in each minute, and a report. See docs/pipelines.md."""
