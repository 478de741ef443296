"""`tirjudge batch`: files of requests in, Parquet out, by one process or by a Ray cluster, for as long as it takes.

inputs    which files, and what their rows ask
plan      one pass over them: what is left to judge, in stretches, and what cannot be
asking    a request becomes a result, whoever judges
results   a result as a row of Parquet
parquet_store  the output: parts that are whole or not there, one row a key
run       plan, judge, plan again what got lost, sum up
local     judging in this process
on_ray    judging on a cluster
cli       the command
"""
