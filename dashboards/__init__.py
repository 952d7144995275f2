"""Grafana's dashboards and Prometheus' rules, written in Python. `python -m dashboards` writes the files beside this."""
