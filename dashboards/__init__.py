"""Grafana's dashboards and Prometheus' rules, in Python. `python -m dashboards` writes the files beside this."""
