"""The simulator: years of a broker's life, from a seed.

world       one broker on a disk that forgets, tears, flips and fails
cluster     several brokers on one database, which take over from each other
broker      one of them; scheduler lets them run, and witness sees whether they keep their promises
"""
