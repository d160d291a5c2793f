"""A program that runs the command line while two threads query without end."""

QUERIES_WITHOUT_END = """
import threading, duckdb
def read():
    connection = duckdb.connect()
    while True:
        connection.sql("SELECT sum(range) FROM range(300_000) GROUP BY range % 7").fetchall()
for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
from runtime.cli import main
main()
"""
