"""A page per module: `TITLE`, `ICON`, `ORDER`, `show(asked)`; its prefix names the audience."""
