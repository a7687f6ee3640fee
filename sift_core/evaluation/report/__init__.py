"""One self-contained HTML page of tables and figures."""
