"""`make demo`: the whole road of a record on real data, the 336,776 flights that left New York City in 2013."""
