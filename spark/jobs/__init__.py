"""Jobs on topics: `python -m spark.jobs.NAME --help`, or the functions of the same names."""
