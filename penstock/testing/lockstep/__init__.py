"""Lockstep with Apache Kafka: the same random requests go to both sides; both must say the same.

Each sequence has ids of its own, so that many run side by side. What a side made up (producer ids, member ids, epochs)
is used on that side only and compared by its place: the n-th id seen here must be the n-th id seen there, and a larger
epoch here a larger one there. After each step the described state is compared, too.
"""
