"""`fallow simulate`: one world without enforcement, the same with it, and both measured.

    options.py     what was requested -> Spec
    enforcer.py    a world's rows -> warehouse -> idle verdicts -> stops
    tally.py       what was true of a world -> hours, dollars, waits
    servers.py     a world whose exporters and API answer on loopback

The truth of the blocks never enters the warehouse.
"""
