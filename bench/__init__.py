"""How fast Braid is: one run, one table. `python -m bench --help` says how to ask."""
