"""Reports: figures put together as a document, and the document written as a file.

A document is what is said (`document.py`) to one audience (`finance.py`, `sre.py`, `team.py`), from
the same figures as the pages; `as_html.py`, `as_pdf.py`, `as_md.py` and `as_csv.py` write it. FOCUS
(`focus/`) is rows of the ledger under the names of that specification.
"""
