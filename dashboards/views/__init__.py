"""Define a page per module: `TITLE`, `ICON` and `show(request)`; some have `TABS`.

A tab that is big has a module beside its page's: `spend_bridge` is a tab of `spend`.
"""
