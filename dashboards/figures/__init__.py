"""Compute all numbers: `figure(views, window, filters) -> structs or Arrow tables`.

Pages and reports show the same figures, so they show the same numbers to the cent. A figure is
pure: it reads rows through `Views`, stores nothing, and uses neither Streamlit nor a clock. Work on
many rows is SQL in the files beside the modules; `figures.query` composes it.
"""
