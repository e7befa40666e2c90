"""The file that spark-submit runs."""
