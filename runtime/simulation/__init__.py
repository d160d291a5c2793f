"""`fallow simulate`: one world without enforcement, the same with it, and both measured.

    options.py     what was asked -> Spec
    enforcing.py   a world's rows -> warehouse -> idle verdicts -> stops
    tally.py       what was true of a world -> hours, dollars, waits
    doors.py       a world with its doors open

The truth of the blocks never enters the warehouse.
"""
