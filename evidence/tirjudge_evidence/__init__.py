"""Evidence: stores of tables, knowledge graphs and documents that a judge's programs query, and checks of responses.

`stores` has the settings and the open stores, `functions` the functions of programs. The modules in `inside` run in the
sandbox, in the process that holds a store.
"""
