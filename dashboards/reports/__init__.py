"""Build reports: figures put together as a document, and the document written as a file.

A document (`document.py`) is for one audience (`finance.py`, `sre.py`, `team.py`) and uses the same
figures as the pages; `as_html.py`, `as_pdf.py`, `as_md.py` and `as_csv.py` write it. FOCUS
(`focus/`) is rows of the ledger under the names of that specification.
"""
