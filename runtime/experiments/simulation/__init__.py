"""Run `fallow simulate`: one world without and with enforcement, and the measures of both.

    options.py     command-line options -> Spec
    enforcer.py    a world's rows -> warehouse -> idle verdicts -> stops
    tally.py       the truth of a world -> hours, dollars, waits
    servers.py     a world whose exporters and API serve on loopback

The truth of the blocks never enters the warehouse.
"""
