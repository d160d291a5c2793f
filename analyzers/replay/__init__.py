"""What the idle analyzer would have found at each of many moments, from one look at the past.

An idle stretch only grows: what began at `s` looked, at `t`, like `[s, t)`. So the looks are read
once, each sum is taken at every moment, and what was known at a moment rests on rows of before.

    looks ─► runs ─► pieces, summed at each moment ─► stretches at each moment ─► parts at rest
             (sums.py)                                (stretches.py)              (rest.py)
                 ─► witnesses at each moment ─► marks; a finding where it is asked for
                    (witnessing.py)             (past.py)
"""
