"""Jobs whose ranks spin or rest while the job gets no further."""
