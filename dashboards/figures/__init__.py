"""One source of numbers: `figure(views, window, filters) -> records or Arrow tables`.

Pages and reports show the same figures, so they show the same numbers to the cent. A figure is
pure: it reads rows through `Views`, keeps nothing, and knows neither Streamlit nor a clock. What
touches many rows is SQL in the files beside the modules; `figures.query` composes it.
"""
