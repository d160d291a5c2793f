"""Define a page per module: `TITLE`, `ICON`, `ORDER`, `show(asked)`; the prefix is the audience."""
