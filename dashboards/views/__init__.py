"""Define a page per module: `TITLE`, `ICON`, `ORDER`, `show(request)`; prefix = audience."""
