"""`tirjudge batch`: judge files of requests into a folder of Parquet files, in one process or on a Ray cluster.

inputs         find the input files and parse their rows
plan           read the input once: which rows to judge, and which rows are invalid
asking         convert a request to a result with a judge
results        a result as a Parquet row
parquet_store  the output folder: one result per key
run            plan, judge, judge lost rows again, summarize
local          judge in this process
on_ray         judge on a Ray cluster
summary        counts of a run
cli            the command
"""
