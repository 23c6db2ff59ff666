"""Rows of tiered topics as Parquet files, each record in exactly one of them: docs/lake.md."""
