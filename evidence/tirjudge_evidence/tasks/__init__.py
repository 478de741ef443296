"""A generator of tasks whose answers are in tables, knowledge graphs and documents. It needs only the standard library."""
